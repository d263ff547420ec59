"""Runs requests on real engines over tiny models, step by step where a test needs that."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.contract.errors import RequestError
from deployments.contract.events import CachedBySource, FinishReason, TokenEvent, TokenLogprob
from deployments.contract.outputs import Vectors, join_vectors
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.draft_runner import DraftRunner
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.draft_check import Drafting
from deployments.engine.loading.draft_heads.draft_head import LoadedHead
from deployments.engine.loading.fingerprint import NO_IDENTITY, WeightsIdentity
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.needs.remote_pages import PullPages
from deployments.engine.scheduler.guessing_drafter import GuessingDrafter
from kv.content import Adapter, Content
from tests import effort
from tests.models import VOCAB, tiny_model

PATIENCE_S = 120.0  # nothing waits for so long unless it would wait forever
GREEDY = SamplingParams(temperature=0)


class Gate:
    """Holds a model at the beginning of its steps: they pass one at a time, or all."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._changed = threading.Condition()
        self._permits = 0
        self._arrived = 0
        self._open = True
        self.listener: Callable[[], object] = lambda: None  # told when a step arrives
        model.get_input_embeddings().register_forward_pre_hook(self._pass)  # its first module

    def _pass(self, *_: object) -> None:
        with self._changed:
            self._arrived += 1
            self._changed.notify_all()
            self.listener()
            passed = self._changed.wait_for(lambda: self._open or self._permits > 0, PATIENCE_S)
            assert passed, "the gate was never opened"
            self._permits -= not self._open

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._permits = self._arrived = 0

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def await_step(self) -> None:
        """Returns when a step stands at the closed gate."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._arrived > 0, PATIENCE_S), "no step came"

    def step(self) -> None:
        """Lets one step pass and waits for the next one."""
        self.await_step()
        self.let_one_pass()
        self.await_step()

    def let_one_pass(self) -> None:
        with self._changed:
            self._arrived = 0
            self._permits += 1
            self._changed.notify_all()


@dataclass(frozen=True)
class Outcome:
    """All that a request came to."""

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None
    stop_token_id: int | None = None
    cached_tokens: int = 0
    error: RequestError | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    states: tuple[float, ...] = ()  # Mirostat's, behind each token
    vectors: Vectors | None = None
    cached_by_source: CachedBySource = ()


@dataclass
class Record:
    """A request's events as they come; asserts that nothing follows the last one."""

    events: list[TokenEvent] = field(default_factory=list)

    def put(self, event: TokenEvent) -> None:
        assert not self.finished, "an event after the terminal one"
        self.events.append(event)

    @property
    def finished(self) -> bool:
        return bool(self.events) and self.events[-1].finish_reason is not None

    @property
    def outcome(self) -> Outcome:
        last = self.events[-1]
        by_source = last.cached_by_source
        assert not by_source or sum(n for _, n in by_source) == last.cached_tokens
        return Outcome(
            tuple(token_id for event in self.events for token_id in event.token_ids),
            tuple(entry for event in self.events for entry in event.logprobs or ()),
            last.finish_reason,
            last.stop_token_id,
            last.cached_tokens,
            last.error,
            self._prompt_logprobs(),
            sum(event.drafted_tokens for event in self.events),
            sum(event.accepted_tokens for event in self.events),
            tuple(event.mirostat_mu for event in self.events if event.mirostat_mu is not None),
            join_vectors([event.vectors for event in self.events if event.vectors is not None]),
            by_source,
        )

    def _prompt_logprobs(self) -> tuple[TokenLogprob | None, ...] | None:
        """Asserts that they come with the first event or not at all."""
        assert all(event.prompt_logprobs is None for event in self.events[1:])
        return self.events[0].prompt_logprobs


@dataclass
class Engine:
    core: EngineCore
    gate: Gate
    model: PreTrainedModel

    def run(self, *requests: GenerationRequest) -> list[Outcome]:
        """Outcomes of requests that are submitted one after the other, without waiting."""
        return self._record(requests, len(requests))

    def run_at_once(self, *requests: GenerationRequest) -> list[Outcome]:
        """The same, but all wait before the first step ends, those with grammars too."""

        def until_all_wait() -> Iterator[GenerationRequest]:
            self.gate.close()
            yield from requests
            self.gate.open()

        return self._record(until_all_wait(), len(requests))

    def run_in_one_batch(self, *requests: GenerationRequest) -> list[Outcome]:
        """The same, but all begin in the same step, behind one that holds the gate until then."""

        def behind_one_that_waits() -> Iterator[GenerationRequest]:
            self.gate.close()
            yield request("holds the gate", (0,), max_tokens=1)
            self.gate.await_step()
            yield from requests
            self.gate.open()

        return self._record(behind_one_that_waits(), len(requests) + 1)[1:]

    def _record(self, requests: Iterable[GenerationRequest], n: int) -> list[Outcome]:
        records = [Record() for _ in range(n)]
        for index, event in self.core.run(requests):
            assert len(event.token_ids) <= 1
            records[index].put(event)
        return [record.outcome for record in records]

    def run_together(self, *requests: GenerationRequest) -> list[Outcome]:
        """Outcomes of requests that all wait before the second step begins."""
        return asyncio.run(self._run_together(requests))

    async def _run_together(self, requests: Sequence[GenerationRequest]) -> list[Outcome]:
        self.gate.close()
        tasks = [asyncio.create_task(self.follow(request)) for request in requests]
        await asyncio.sleep(0)  # each has submitted its request then
        self.gate.open()
        return [record.outcome for record in await asyncio.gather(*tasks)]

    def order_of_ends(self, *requests: GenerationRequest, aborted: str = "") -> list[str]:
        """Their names as they end, when all wait behind a first one and one of them is aborted."""

        def behind_one_that_waits() -> Iterator[GenerationRequest]:
            self.gate.close()
            yield request("holds the gate", (0,), max_tokens=1)
            self.gate.await_step()
            yield from requests
            self.core.abort(aborted)
            self.gate.open()

        events = self.core.run(behind_one_that_waits())
        ended = [index for index, event in events if event.finish_reason is not None]
        return [requests[index - 1].request_id for index in ended if index > 0]

    async def follow(self, request: GenerationRequest) -> Record:
        record = Record()
        async for event in self.core.stream(request):
            record.put(event)
        return record

    async def steps_to_first_token(self, one: GenerationRequest, limit: int) -> int:
        """How many pass before it, while the next one stands at the closed gate."""
        record = Record()

        async def read() -> None:
            async for event in self.core.stream(one):
                record.put(event)

        task = asyncio.create_task(read())
        await asyncio.sleep(0)
        n = 0
        while not record.events:
            self.gate.step()
            for _ in range(3):  # what was delivered is read
                await asyncio.sleep(0)
            n += 1
            assert n <= limit
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return n

    def check_idle(self) -> None:
        """Asserts that no page is held and the accounts agree, when nothing runs any more."""
        self.core.cache.check()
        assert self.core.cache.pool.n_used == 0
        assert len(self.core.cache.table) == 0


def loaded(model: PreTrainedModel | LoadedModel) -> LoadedModel:
    """A model that the loader would have made so, or has made; on the device of this run."""
    found = model if isinstance(model, LoadedModel) else LoadedModel(model)
    return found if effort.device == "cpu" else found.to(effort.device)


def _drafting(draft: PreTrainedModel | Drafting) -> Drafting:
    if not isinstance(draft, LoadedHead):
        return loaded(draft)
    return draft if effort.device == "cpu" else draft.to(effort.device)


def drop_graphs(core: EngineCore) -> None:
    """Makes the engine launch the kernels of each step from here on, its draft model too."""
    scheduler = core._scheduler
    scheduler._runner._forward.drop_graphs()
    drafter = scheduler._drafter
    if isinstance(drafter, GuessingDrafter) and isinstance(drafter._runner, DraftRunner):
        drafter._runner._forward.drop_graphs()


@contextmanager
def engine(
    architecture: str = "llama",
    *,
    eos: frozenset[int] = frozenset(),
    model: PreTrainedModel | LoadedModel | None = None,
    limits: EngineLimits | None = None,
    tokenizer_json: Callable[[], str] | None = None,
    draft: PreTrainedModel | Drafting | None = None,
    identity: WeightsIdentity = NO_IDENTITY,
    pull: PullPages | None = None,
) -> Iterator[Engine]:
    """An engine that has let go of everything when the block is left."""
    ready = loaded(model or tiny_model(architecture))
    gate = Gate(ready.model)
    core = EngineCore(
        ready,
        eos,
        limits or roomy(),
        tokenizer_json or ascii_tokenizer,
        draft=None if draft is None else _drafting(draft),
        identity=identity,
        pull=pull,
    )
    if effort.device != "cpu":  # what stands at a module is not a part of a captured step
        drop_graphs(core)
    running = Engine(core, gate, ready.model)
    try:
        yield running
    finally:
        gate.open()
        core.shutdown()
    running.check_idle()


def roomy(**changes: float | None) -> EngineLimits:
    """Limits that never get in the way, but for the changes."""
    return replace(EngineLimits(n_pages=512, page_size=4, max_running=16), **changes)  # type: ignore[arg-type]


@cache
def ascii_tokenizer() -> str:
    """A tokenizer.json whose token i is the character i."""
    as_token = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens = [as_token.pre_tokenize_str(chr(i))[0][0] for i in range(VOCAB)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = as_token
    tokenizer.decoder = decoders.ByteLevel()
    text: str = tokenizer.to_str()
    return text


def ascii_text(ids: Sequence[int]) -> str:
    return bytes(ids).decode("ascii")


def random_ids(n: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(VOCAB, (n,), generator=generator).tolist())


def request(
    name: str,
    prompt_ids: Sequence[int],
    sampling: SamplingParams = GREEDY,
    *,
    max_tokens: int | None = 16,
    produced_ids: Sequence[int] = (),
    min_tokens: int = 0,
    stop_token_ids: Sequence[int] = (),
    ignore_eos: bool = False,
    cache_salt: str = "",
    grammar: str = "",
    prompt_logprobs: int | None = None,
    priority: int = 0,
    adapters: Sequence[Adapter] = (),
) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_ids=tuple(prompt_ids),
        sampling=sampling,
        max_tokens=max_tokens,
        produced_ids=tuple(produced_ids),
        min_tokens=min_tokens,
        stop_token_ids=tuple(stop_token_ids),
        ignore_eos=ignore_eos,
        content=Content(cache_salt, tuple(adapters)),
        grammar=grammar,
        prompt_logprobs=prompt_logprobs,
        priority=priority,
    )


class Poison:
    """Makes a model misbehave on one token id, as a fake of failing hardware or code."""

    def __init__(self, model: PreTrainedModel, token_id: int) -> None:
        self.token_id = token_id
        self._model = model

    def raises(self) -> None:
        def hook(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            if (args[0] == self.token_id).any():
                raise ValueError("poisoned")

        self._model.get_input_embeddings().register_forward_pre_hook(hook)

    def gives_nan(self) -> None:
        with torch.no_grad():
            self._model.get_input_embeddings().weight[self.token_id] = torch.nan


ERROR = ValueError("a broken step")


class Faults:
    """Fails the steps of a model that it is told to, when they are about to give their logits.

    Until then a failing step computes with NaNs, so that all that it writes is broken.
    """

    def __init__(self, model: PreTrainedModel, error: Exception = ERROR) -> None:
        self.error, self._fails = error, False
        self.failing: Callable[[Tensor], bool] = lambda ids: False  # by the ids of a step
        self.sizes: list[int] = []  # of the steps that did not fail
        model.get_input_embeddings().register_forward_hook(self._embed)
        model.get_output_embeddings().register_forward_pre_hook(self._finish)

    def _embed(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        self._fails = self.failing(args[0][0])
        if self._fails:
            return torch.full_like(output, torch.nan)
        self.sizes.append(args[0].shape[1])
        return output

    def _finish(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if self._fails:
            raise self.error
