"""The engine on ids: validates requests, hands them to its scheduler, streams their events."""

import asyncio
import itertools
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, contextmanager
from queue import SimpleQueue

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.contract.slots import SlotAction, SlotReport, SlotStatus
from deployments.engine.build import (
    adapter_slots,
    build_cache,
    build_scheduler,
    find_execution,
    list_needs,
    usable_encoder,
)
from deployments.engine.build_drafts import build_drafts
from deployments.engine.build_tiers import build_slots, build_tiers
from deployments.engine.forward.cross_attention import max_sound_bytes
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.combination_check import check_combination
from deployments.engine.loading.draft_check import Drafting, check_draft
from deployments.engine.loading.fingerprint import NO_IDENTITY, WeightsIdentity
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.media.encoders import Bidirectional
from deployments.engine.needs.remote_pages import PullPages
from deployments.engine.outputs.validation import find_invalid_output, pooled_of
from deployments.engine.parallel.ranks import Ranks
from deployments.engine.scheduler.admission import Admission
from deployments.engine.stats import EngineStats
from deployments.engine.tasks.mailbox import LoopMailbox, Mailbox, ThreadMailbox
from deployments.engine.tasks.task import Task, make_task
from deployments.engine.threads import one_thread
from deployments.engine.validation import find_invalid, find_long_span


class EngineCore:
    """Owns a model, its cache and the thread that runs them.

    Requests that can't be served end with one event whose reason is ERROR; nothing raises Refused.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        eos_token_ids: frozenset[int],
        limits: EngineLimits,
        tokenizer_json: Callable[[], str] | None = None,
        ranks: Ranks | None = None,
        draft: Drafting | None = None,
        identity: WeightsIdentity = NO_IDENTITY,
        pull: PullPages | None = None,
    ) -> None:
        """`tokenizer_json` is called on any thread when the first request with a grammar comes;
        without it these are refused. With `ranks` `loaded` is rank 0's share, all others follow,
        and they are stopped with the engine. `draft` is a small model of the same tokenizer or a
        head of this model, which drafts. `identity` tells all these weights from others, for what
        outlives the engine or comes from other replicas, where `pull` can pull it.

        Raises ValueError for limits that can't be kept, UnsupportedModelError when the engine can't
        run the model.
        """
        check_combination(loaded, limits, has_ranks=ranks is not None, has_draft=draft is not None)
        with one_thread() as threads:
            checked = None if draft is None else check_draft(draft, loaded)
            self.execution = find_execution(loaded, ranks)
            self.cache = build_cache(loaded, self.execution, limits, ranks, checked)
            adapters = adapter_slots(loaded, self.execution, limits)
            # Tokenizers may name ends that the model has no logits for.
            ends = frozenset(id for id in eos_token_ids if id < loaded.vocab_size)
            tokens = tokenizer_json, ends
            needs = list_needs(loaded, adapters, limits, ranks, self.cache, *tokens)
            drafts = build_drafts(loaded, self.execution, checked, self.cache, limits)
            pull = None if ranks is not None else pull
            tiers = build_tiers(loaded, self.execution, self.cache, limits, identity, pull)
            self.pages = tiers.pages
            self._slots = build_slots(loaded, self.cache, limits, identity)
            slots = () if self._slots is None else (self._slots,)
            self._needs = [*needs, *drafts.needs, *tiers.needs, *slots]
            self._admission = Admission(limits.max_waiting)
            self._scheduler = build_scheduler(
                loaded,
                self.execution,
                self.cache,
                self._admission,
                limits,
                threads,
                ranks,
                drafts,
                adapters,
                self._needs,
            )
        self.eos_token_ids = ends
        self._sound_bytes = 0 if loaded.speech is None else max_sound_bytes(loaded.model)
        self.context_length = self.cache.shape.max_tokens
        self.outputs = loaded.outputs_by(self.execution)
        self.vocab_size = loaded.vocab_size
        self._encoder = usable_encoder(loaded, ranks)
        self.media = None if self._encoder is None else self._encoder.rules
        self._streamed: set[Task] = set()
        # Admitted, and not with the scheduler yet; set for those that were aborted.
        self._opening: dict[Task, threading.Event] = {}
        self._limits = limits
        self._ranks = ranks
        self._numbers = itertools.count()

    async def stream(
        self, request: GenerationRequest, is_complete: Callable[[], bool] = lambda: False
    ) -> AsyncGenerator[TokenEvent, None]:
        """Events of one sequence, for an event loop; the last one has a finish reason.

        Leaving the generator ends the task and frees its pages within two steps. It counts as
        aborted unless `is_complete` says then that its reader has all of the answer.
        """
        mailbox = LoopMailbox()
        try:
            task = self._accept(self._new_id(request), request, mailbox)
            # What another replica has begun was accepted there: accepted work finishes.
            (self._admission.enter if request.produced_ids else self._admission.admit)(task)
            with self._started_after(task):
                if work := self._preparations(task):
                    await asyncio.to_thread(_do_all, work)
        except Refused as refused:
            yield TokenEvent(finish_reason=FinishReason.ERROR, error=refused.error)
            return
        last = None
        self._streamed.add(task)
        try:
            async with aclosing(mailbox.events()) as events:
                async for last in events:
                    yield last
        finally:
            self._streamed.remove(task)
            if last is None or last.finish_reason is None:
                self._scheduler.end(task.id, is_complete=is_complete())

    def run(
        self, requests: Iterable[GenerationRequest]
    ) -> Generator[tuple[int, TokenEvent], None, None]:
        """Events of several sequences, each with the number of its request, for a plain thread.

        Ends when all sequences have ended. Leaving the generator ends those that have not.
        """
        events: SimpleQueue[tuple[int, TokenEvent]] = SimpleQueue()
        running: dict[int, str] = {}
        try:
            for index, request in enumerate(requests):
                running[index] = self._submit(request, ThreadMailbox(index, events))
            while running:
                index, event = events.get()
                if event.finish_reason is not None:
                    del running[index]
                yield index, event
        finally:
            for task_id in running.values():
                self.abort(task_id)

    def abort(self, request_id: str) -> None:
        """Ends every sequence of this request that has not ended. An unknown id has none."""
        for task, is_aborted in [*self._opening.items()]:
            if request_id in task.names:
                is_aborted.set()
        self._scheduler.end(request_id, is_complete=False)

    def end_thoughts(self, response_id: str) -> bool:
        """Ends thinking in the sequences of a response, as if its budget were spent. False where
        none has a thinking budget, which says how thinking ends.

        To be called on the thread of the streams.
        """
        thinking = [
            task
            for task in self._streamed
            if task.request.response_id == response_id and task.request.thinking is not None
        ]
        for task in thinking:
            self._scheduler.end_thinking(task)
        return bool(thinking)

    @property
    def saves_slots(self) -> bool:
        """Whether slots can be saved, restored and erased."""
        return self._slots is not None

    async def act_on_slot(self, action: SlotAction) -> SlotReport:
        """Saves, restores or erases a slot, when no running request uses it. Raises Refused."""
        if self._slots is None:
            message = "This server does not support slots action. Start it with `--slot-save-path`"
            raise Refused.of_kind(ErrorKind.NOT_SUPPORTED, message)
        return await asyncio.wrap_future(self._slots.submit(action))

    def slots_of(self, owner: str) -> Mapping[int, SlotStatus]:
        """Says what the slots of an owner hold, by their numbers; from any thread."""
        return {} if self._slots is None else self._slots.table.statuses(owner)

    def stats(self) -> EngineStats:
        """Counters and gauges of this moment; from any thread."""
        return self._scheduler.stats()

    def check_health(self) -> None:
        """Raises RuntimeError when the loop has ended or a step does not come back."""
        if not self._scheduler.is_alive:
            raise RuntimeError("the engine's thread has ended")
        if self._ranks is not None and self._ranks.lost_reason is not None:
            raise RuntimeError(f"the model's ranks are not complete: {self._ranks.lost_reason}")
        if (stuck := self._scheduler.stuck_for()) > self._limits.max_stuck_s:
            raise RuntimeError(f"a step has been running for {stuck:.0f} s")

    def shutdown(self) -> None:
        """Ends every task and the thread; idempotent."""
        self._scheduler.stop()
        if self._ranks is not None:
            self._ranks.stop()

    def _submit(self, request: GenerationRequest, mailbox: Mailbox) -> str:
        """The id of the new task, by which it alone can be aborted."""
        task_id = self._new_id(request)
        try:
            task = self._accept(task_id, request, mailbox)
            self._admission.enter(task)
            with self._started_after(task):
                _do_all(self._preparations(task))
        except Refused as refused:
            mailbox.put(TokenEvent(finish_reason=FinishReason.ERROR, error=refused.error))
        return task_id

    def _new_id(self, request: GenerationRequest) -> str:
        # A request may come again while its first task has not been seen to end.
        return f"{request.request_id}#{next(self._numbers)}"

    def _accept(self, task_id: str, request: GenerationRequest, mailbox: Mailbox) -> Task:
        """A task for the request. Raises Refused when it can't be run."""
        takes = {
            "takes_adapters": self._limits.max_loras > 0,
            "takes_media": self.media is not None,
        }
        sound_bytes = self._sound_bytes
        if error := find_invalid(request, self.vocab_size, sound_bytes=sound_bytes, **takes):
            raise Refused(error)
        if error := self._find_long_span(request):
            raise Refused(error)
        if error := find_invalid_output(request, self.outputs, self.context_length):
            raise Refused(error)
        n = len(request.prompt_ids)
        if request.output is None and n >= self.context_length:
            message = (
                f"the prompt has {n} tokens; the context of {self.context_length} tokens "
                "must hold it and at least one more"
            )
            raise Refused.of_kind(ErrorKind.CONTEXT_LENGTH, message)
        pooled = pooled_of(request, self.outputs)
        context_length = self.context_length
        return make_task(task_id, request, mailbox, self.eos_token_ids, context_length, pooled)

    def _find_long_span(self, request: GenerationRequest) -> RequestError | None:
        """Returns the error of a medium that is too long for a step. Where ids of a medium attend
        to each other both ways, one step has all of them, beside all rows that go on."""
        if self._encoder is None or self._encoder.bidirectional is Bidirectional.NOWHERE:
            return None
        most = self.cache.shape.max_new_tokens - self.cache.shape.max_tasks + 1
        return find_long_span(request, self._encoder.placeholder_ids, most)

    def _preparations(self, task: Task) -> list[Callable[[], None]]:
        """The work on other threads that the needs of a task ask for."""
        return [work for need in self._needs if (work := need.prepare(task)) is not None]

    @contextmanager
    def _started_after(self, task: Task) -> Iterator[None]:
        """Starts an admitted task when its block ends. An abort during the block is not lost."""
        is_aborted = self._opening[task] = threading.Event()
        try:
            yield
        except BaseException:  # refused, or the generator was left
            self._admission.leave(task)
            raise
        else:
            self._start(task)
            if is_aborted.is_set():  # before the scheduler knew the task; it does from now on
                self._scheduler.end(task.id, is_complete=False)
        finally:
            del self._opening[task]

    def _start(self, task: Task) -> None:
        # An earlier replica may have done it all.
        reason = task.finish_reason() if task.request.produced_ids else None
        if reason is not None:
            task.end()
            self._admission.leave(task)
            task.mailbox.put(TokenEvent(finish_reason=reason))
        else:
            self._scheduler.add(task)


def _do_all(work: Iterable[Callable[[], None]]) -> None:
    for part in work:
        part()
