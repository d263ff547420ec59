"""An engine that plays scripts: what it is asked is kept, and what it has running is counted."""

import asyncio
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace

from deployments.contract.errors import Refused, RequestError
from deployments.contract.events import FinishReason, TokenEvent, TokenLogprob
from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.contract.outputs import Vectors, join_vectors
from deployments.contract.replica_status import FleetStatus, ReplicaState, ReplicaStatus
from deployments.contract.requests import GenerationRequest
from deployments.contract.served_adapters import NO_ADAPTERS, AskedAdapters
from deployments.contract.slots import SlotAction, SlotReport
from deployments.contract.weights_form import WeightsForm
from deployments.ingress.fleet.cluster import find_served
from deployments.model.settings import application_name
from deployments.router.downloads.downloads import OFF
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.text.cards import byte_level, card, token_id

Script = Callable[[GenerationRequest], AsyncIterator[TokenEvent]]
END = token_id(byte_level(), "<|im_end|>")


class ScriptedEngine:
    def __init__(self, script: Script, *cards: ModelCard) -> None:
        self.script = script
        self.cards = {model_card.name: model_card for model_card in cards or (card(),)}
        self.requests: list[GenerationRequest] = []
        self.running = 0
        self.states: dict[str, ModelState] = {}
        self.sources: dict[str, str] = {}
        self.modalities: dict[str, tuple[str, ...]] = {}
        self.weights: dict[str, WeightsForm] = {}
        self.paths: dict[str, str] = {}
        self.version = 0
        self.changed = asyncio.Condition()
        self.reloads = 0
        self.replicas = 1
        self.will_retry = False
        self.cards_asked = 0
        self.adapters = NO_ADAPTERS  # of each model
        self.adapter_commands: list[tuple[object, ...]] = []
        self.slot_actions: list[tuple[str, SlotAction, str | None, str]] = []
        self.starts: asyncio.Queue[str] = asyncio.Queue()

    async def card(self, model: str | None) -> ModelCard:
        self.cards_asked += 1
        name = next(iter(self.cards)) if model is None else model
        served = find_served(await self.statuses(), name)
        asked = AskedAdapters(asked=name, names=(served.status.name,), table=served.status.adapters)
        return replace(self.cards[served.status.name], adapters=asked)

    async def statuses(self, timeout_s: float = 1.0) -> list[ModelStatus]:
        return [
            ModelStatus(
                name=model_card.name,
                application=application_name(model_card.name),
                state=self.states.get(model_card.name, ModelState.READY),
                created=model_card.created,
                source=self.sources.get(model_card.name, "argument"),
                path=self.paths.get(model_card.name, ""),
                modalities=self.modalities.get(model_card.name),
                weights=self.weights.get(model_card.name),
                replicas=self.replicas,
                replicas_target=self.replicas,
                will_retry=self.will_retry,
                adapters=self.adapters,
            )
            for model_card in self.cards.values()
        ]

    async def changes(self, version: int, wait_s: float) -> tuple[int, list[ModelStatus]]:
        async with self.changed:
            await self.changed.wait_for(lambda: self.version != version)
        return self.version, await self.statuses()

    async def fleet(self) -> FleetStatus:
        """Each model has a replica that has not said anything yet."""
        replica = ReplicaStatus(
            replica_id="0", node="10.0.0.2", node_id="n", state=ReplicaState.READY, report=None
        )
        return FleetStatus(
            started_at=0.0,
            can_download=False,
            models=tuple((status, (replica,)) for status in await self.statuses()),
        )

    async def load(self, model: str) -> None:
        await self._becomes(model, ModelState.READY)

    async def unload(self, model: str) -> None:
        await self._becomes(model, ModelState.UNLOADED)

    async def reload(self) -> None:
        self.reloads += 1

    async def download(self, model: str, revision: str | None) -> None:
        raise Refused(OFF)

    async def delete(self, model: str) -> None:
        raise Refused(OFF)

    async def load_adapter(self, name: str, path: str, model: str | None, replaces: bool) -> None:
        self.adapter_commands.append(("load", name, path, model, replaces))

    async def unload_adapter(self, name: str) -> None:
        self.adapter_commands.append(("unload", name))

    async def scale_adapters(self, model: str, scales: Sequence[tuple[int, float]]) -> None:
        self.adapter_commands.append(("scale", model, list(scales)))

    async def act_on_slot(
        self, model: str, action: SlotAction, replica_id: str | None, session: str
    ) -> SlotReport:
        self.slot_actions.append((model, action, replica_id, session))
        return SlotReport(96, 4096, 1.5)

    async def is_serving(self) -> bool:
        return True

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        return []

    async def _becomes(self, model: str, state: ModelState) -> None:
        self.states[(await self.card(model)).name] = state
        async with self.changed:
            self.version += 1
            self.changed.notify_all()

    async def generate(
        self,
        card: ModelCard,
        request: GenerationRequest,
        is_complete: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[TokenEvent, None]:
        self.requests.append(request)
        self.running += 1
        self.starts.put_nowait(request.request_id)
        try:
            async for event in self.script(request):
                yield event
        finally:
            self.running -= 1


class Loading(ScriptedEngine):
    """Its model comes up when `loaded` says so, or does not when there is a `failure`."""

    def __init__(self, failure: RequestError | None = None) -> None:
        super().__init__(says("Hello there"))
        self.loaded = asyncio.Event()
        self.failure = failure
        self.asked = asyncio.Semaphore(0)
        self.waiting = 0

    async def card(self, model: str | None) -> ModelCard:
        self.waiting += 1
        self.asked.release()
        try:
            await self.loaded.wait()
        finally:
            self.waiting -= 1
        if self.failure is not None:
            raise Refused(self.failure)
        return await super().card(model)


def says(*texts: str, size: int = 1, gate: asyncio.Event | None = None) -> Script:
    """Speaks the text of the request's choice, `size` tokens an event, and then the end token.

    With a gate it waits for that before the last event.
    """
    tokenizer = TextTokenizer(card())
    return plays(*(tokenizer.encode(text, False) for text in texts), size=size, gate=gate)


def plays(*answers: Sequence[int], size: int = 1, gate: asyncio.Event | None = None) -> Script:
    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        choice = int(request.request_id.rpartition("-")[2])
        answer = answers[choice % len(answers)]
        ids = [*answer, END][: request.max_tokens]
        for start in range(0, len(ids), size):
            if gate is not None and start + size >= len(ids):
                await gate.wait()
            yield event_of(request, ids, start, size)
            await asyncio.sleep(0)

    return script


def event_of(request: GenerationRequest, ids: list[int], start: int, size: int) -> TokenEvent:
    part = tuple(ids[start : start + size])
    ended = part[-1] == END
    reason = FinishReason.STOP if ended else FinishReason.LENGTH
    return TokenEvent(
        token_ids=part,
        logprobs=tuple(map(scored, part)) if request.sampling.logprobs is not None else None,
        finish_reason=reason if start + size >= len(ids) else None,
        stop_token_id=END if ended else None,
        cached_tokens=min(4, len(request.prompt_ids) - 1),
    )


def scored(drawn: int) -> TokenLogprob:
    return TokenLogprob(drawn, -0.5, ((drawn, -0.5), (END, float("-inf"))))


def pools(vectors: Callable[[GenerationRequest], Sequence[Sequence[float]]]) -> Script:
    """Answers with these vectors, which come in two parts if there are several."""

    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        *first, last = (packed([vector]) for vector in vectors(request))
        if first:
            yield TokenEvent(vectors=join_vectors(first))
        await asyncio.sleep(0)
        yield TokenEvent(vectors=last, finish_reason=FinishReason.STOP)

    return script


def packed(vectors: Sequence[Sequence[float]]) -> Vectors:
    numbers = [number for vector in vectors for number in vector]
    return Vectors(len(vectors), struct.pack(f"<{len(numbers)}f", *numbers))


def fails(error: RequestError, after: str = "") -> Script:
    """Speaks some text, and then ends with the error as an event."""
    spoken = TextTokenizer(card()).encode(after, False)

    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        for spoken_id in spoken:
            yield TokenEvent(token_ids=(spoken_id,))
            await asyncio.sleep(0)
        yield TokenEvent(finish_reason=FinishReason.ERROR, error=error)

    return script


def raises(failure: Exception) -> Script:
    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        if failure:
            raise failure
        yield TokenEvent()

    return script


def never() -> Script:
    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        await asyncio.Event().wait()
        yield TokenEvent()

    return script


def forever() -> Script:
    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        while True:
            yield TokenEvent(token_ids=(66,))
            await asyncio.sleep(0)

    return script
