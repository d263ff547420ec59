"""The engine on ids: validates requests, hands them to its scheduler, streams their events."""

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from queue import SimpleQueue

import torch
from transformers import PreTrainedModel

from deployments.engine.cache_sizing import cache_shape
from deployments.engine.forward.decoder import fuse
from deployments.engine.forward.forward import Forward
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU, MAX_DRAFTED_STEP_GPU, EngineLimits
from deployments.engine.loading.loader import attach
from deployments.engine.parallel.follower import lead
from deployments.engine.parallel.ranks import Ranks
from deployments.engine.runner import Runner
from deployments.engine.sampling.grammar_mask import GrammarStrategy
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.scheduler.admission import Admission
from deployments.engine.scheduler.drafter import Drafter
from deployments.engine.scheduler.scheduler import InferenceScheduler
from deployments.engine.stats import EngineStats
from deployments.engine.tasks.grammar_matcher import Grammars
from deployments.engine.tasks.mailbox import LoopMailbox, Mailbox, ThreadMailbox
from deployments.engine.tasks.task import Task, make_task
from deployments.engine.threads import one_thread
from deployments.engine.validation import find_invalid
from deployments.wire import (
    ErrorKind,
    FinishReason,
    GenerationRequest,
    Refused,
    TokenEvent,
)
from kv.cache import KVCache

log = logging.getLogger(__name__)


class EngineCore:
    """Owns a model, its cache and the thread that runs them.

    `tokenizer_json` is asked, from any thread, when the first request with a grammar comes; without
    it those are refused. With `ranks` the model is rank 0's share, and all others follow; they are
    stopped with the engine. Raises UnsupportedModelError when the engine can't run the model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        eos_token_ids: frozenset[int],
        limits: EngineLimits,
        tokenizer_json: Callable[[], str] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        with one_thread() as threads:
            shape = cache_shape(model, limits, 1 if ranks is None else ranks.size)
            if ranks is not None:
                lead(ranks, shape)
            attach(model, shape)
            if ranks is None:
                fuse(model)
            self.cache = KVCache(shape, dtype=model.dtype, device=model.device)
        self.context_length = shape.max_tokens
        self.vocab_size: int = model.config.get_text_config(decoder=True).vocab_size
        # Tokenizers may name ends that the model has no logits for.
        self.eos_token_ids = frozenset(id for id in eos_token_ids if id < self.vocab_size)
        self._grammars = Grammars(tokenizer_json, self.vocab_size, self.eos_token_ids)
        self._admission = Admission(limits.max_waiting)
        self._streamed: set[Task] = set()
        # Admitted, and not with the scheduler yet; set for those that were aborted.
        self._opening: dict[Task, threading.Event] = {}
        self._limits = limits
        self._ranks = ranks
        self._numbers = itertools.count()
        self._scheduler = InferenceScheduler(
            Runner(
                Forward(model, self.cache.storage),
                self.cache,
                default_pipeline(GrammarStrategy()),
                threads,
                ranks,
            ),
            self.cache,
            self._admission,
            max_running=limits.max_running,
            max_batch_tokens=max(limits.max_batch_tokens, limits.max_running),
            target_itl_s=limits.target_itl_ms and limits.target_itl_ms / 1e3,
            is_ahead=ranks is None and _is_ahead(limits, model.device),
            drafter=_drafter(limits, model.device),
        )
        log.info("engine with %s, %s", shape, model.dtype)

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Events of one sequence. Leaving the generator ends the task and frees its pages."""
        mailbox = LoopMailbox()
        try:
            task = self._accept(self._new_id(request), request, mailbox)
            # What another replica has begun was accepted there: accepted work finishes.
            (self._admission.enter if request.produced_ids else self._admission.ask)(task)
            with self._on_its_way(task):
                if request.grammar:
                    await self._open_grammar_beside(task)
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
                self.abort(task.id)

    def run(
        self, requests: Iterable[GenerationRequest]
    ) -> Generator[tuple[int, TokenEvent], None, None]:
        """Events of several sequences, by number, for a plain thread; as many as it likes."""
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
        """Ends every sequence of this request that has not ended; unknown ids are none."""
        for task, left in [*self._opening.items()]:
            if task.is_called(request_id):
                left.set()
        self._scheduler.abort(request_id)

    def end_thoughts(self, response_id: str) -> bool:
        """Of a response, where a budget says what ends one; whether it has any. For the thread of
        the streams.
        """
        mine = [task for task in self._streamed if task.request.response_id == response_id]
        thinking = [task for task in mine if task.request.thinking is not None]
        for task in thinking:
            task.thought_over = True
        return bool(thinking)

    def stats(self) -> EngineStats:
        return self._scheduler.stats()

    def check_health(self) -> None:
        """Raises RuntimeError when the loop has ended or a step does not come back."""
        if not self._scheduler.alive:
            raise RuntimeError("the engine's thread has ended")
        if self._ranks is not None and self._ranks.lost is not None:
            raise RuntimeError(f"the model's ranks are not complete: {self._ranks.lost}")
        if (stuck := self._scheduler.stuck_for()) > self._limits.max_stuck_s:
            raise RuntimeError(f"a step has been running for {stuck:.0f} s")

    def shutdown(self) -> None:
        """Ends every task and the thread; idempotent."""
        self._scheduler.stop()
        if self._ranks is not None:
            self._ranks.stop()
        self._grammars.stop()

    def _submit(self, request: GenerationRequest, mailbox: Mailbox) -> str:
        """The id of the new task, by which it alone can be aborted; its grammar is opened here."""
        task_id = self._new_id(request)
        try:
            task = self._accept(task_id, request, mailbox)
            self._admission.enter(task)
            with self._on_its_way(task):
                if request.grammar:
                    self._open_grammar(task)
        except Refused as refused:
            mailbox.put(TokenEvent(finish_reason=FinishReason.ERROR, error=refused.error))
        return task_id

    def _new_id(self, request: GenerationRequest) -> str:
        # A request may come again while its first task has not been seen to end.
        return f"{request.request_id}#{next(self._numbers)}"

    def _accept(self, task_id: str, request: GenerationRequest, mailbox: Mailbox) -> Task:
        """A task for the request. Raises Refused when it can't be run."""
        if error := find_invalid(request, self.vocab_size):
            raise Refused(error)
        n = len(request.prompt_ids)
        if n >= self.context_length:
            message = (
                f"the prompt has {n} tokens; the context of {self.context_length} tokens "
                "must hold it and at least one more"
            )
            raise Refused.of_kind(ErrorKind.CONTEXT_LENGTH, message)
        return make_task(task_id, request, mailbox, self.eos_token_ids, self.context_length)

    def _open_grammar(self, task: Task) -> None:
        if task.end_token() is None:
            task.grammar = self._grammars.open(task.request, task.end_token_ids)

    async def _open_grammar_beside(self, task: Task) -> None:
        # What is known already shall not wait for a thread behind what is not.
        if self._grammars.knows(task.request):
            self._open_grammar(task)
        else:
            await asyncio.to_thread(self._open_grammar, task)

    @contextmanager
    def _on_its_way(self, task: Task) -> Iterator[None]:
        """Around what has to be made ready before the task can start; an abort is not lost."""
        left = self._opening[task] = threading.Event()
        try:
            yield
        except BaseException:  # refused, or left
            self._admission.leave(task)
            raise
        else:
            self._start(task)
            if left.is_set():  # when the scheduler did not know it yet; it does from now on
                self._scheduler.abort(task.id)
        finally:
            del self._opening[task]

    def _start(self, task: Task) -> None:
        # An earlier replica may have done it all.
        reason = task.finish_reason() if task.request.produced_ids else None
        if reason is not None:
            self._admission.leave(task)
            task.mailbox.put(TokenEvent(finish_reason=reason))
        else:
            self._scheduler.add(task)


def _drafter(limits: EngineLimits, device: torch.device) -> Drafter | None:
    if not limits.draft_tokens:
        return None
    return Drafter(
        limits.draft_tokens, MAX_DRAFTED_STEP_GPU if device.type == "cuda" else MAX_DRAFTED_STEP_CPU
    )


def _is_ahead(limits: EngineLimits, device: torch.device) -> bool:
    if limits.async_scheduling is not None:
        return limits.async_scheduling
    return device.type == "cuda"  # elsewhere the host computes the step itself
