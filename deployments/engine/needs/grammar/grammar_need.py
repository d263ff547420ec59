"""The need of grammars: what takes long in following one is done beside the engine's thread.

The masks of a step are begun for all its rows before the model computes, and collected behind it. A
row whose mask is late is computed again, and a task whose next mask takes long has no row until it
is there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait

from deployments.engine.needs.grammar.compiler import GrammarCompiler
from deployments.engine.needs.grammar.matcher import GrammarMatcher
from deployments.engine.needs.need import Need
from deployments.engine.tasks.batch import Ahead, Batch, start_of
from deployments.engine.tasks.task import Task

MASK_GRACE_S = 0.01  # that a step waits for masks when all else is computed


class GrammarNeed(Need):
    def __init__(
        self,
        tokenizer_json: Callable[[], str] | None,
        vocab_size: int,
        eos_token_ids: frozenset[int],
    ) -> None:
        """`tokenizer_json` is called on any thread when the first request with a grammar comes;
        without it these are refused."""
        self._wake: Callable[[], None] = lambda: None
        self.compiler = GrammarCompiler(
            tokenizer_json, vocab_size, eos_token_ids, lambda: self._wake()
        )
        self._running: dict[Task, GrammarMatcher] = {}

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def prepare(self, task: Task) -> Callable[[], None] | None:
        request = task.request
        if not request.grammar or task.end_token() is not None:
            return None

        def open_grammar() -> None:
            task.constrain(self.compiler.open(request, task.end_token_ids))

        if not self.compiler.is_compiled(request):
            return open_grammar
        # What is compiled already shall not wait for a thread behind what is not.
        open_grammar()
        return None

    def join(self, task: Task, running: Iterable[Task]) -> None:
        if isinstance(task.constraint, GrammarMatcher):
            self._running[task] = task.constraint

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        self._running.pop(task, None)

    def choose(self, tasks: Sequence[Task], ahead: Ahead) -> Sequence[Task]:
        return [task for task in tasks if self._may_follow(task, ahead)] if self._running else tasks

    def begin_sampling(self, batch: Batch, rows: Sequence[int]) -> None:
        masking = self._masking(batch, rows)
        if masking:
            begin_masks({grammar: batch.tasks[row].drafted for row, grammar in masking.items()})

    def late_rows(self, batch: Batch, rows: Sequence[int]) -> frozenset[int]:
        """The rows whose masks are not there at the end of a short wait for all."""
        masking = self._masking(batch, rows)
        if not masking:
            return frozenset()
        wait([future for grammar in masking.values() for future in grammar.begun], MASK_GRACE_S)
        late = {row: grammar for row, grammar in masking.items() if grammar.is_busy}
        for grammar in late.values():
            grammar.note_slow()
        return frozenset(late)

    def close(self) -> None:
        self.compiler.stop()

    def _masking(self, batch: Batch, rows: Sequence[int]) -> dict[int, GrammarMatcher]:
        """The grammars of those rows whose next tokens can't be any."""
        if not self._running:
            return {}
        found = ((row, self._running.get(batch.tasks[row])) for row in rows)
        return {
            row: grammar for row, grammar in found if grammar is not None and grammar.is_masking
        }

    def _may_follow(self, task: Task, ahead: Ahead) -> bool:
        """Whether the next step may have a row of the task: one that samples has a mask then."""
        grammar = self._running.get(task)
        if grammar is None:
            return True
        n_left = task.n_tokens - start_of(task, ahead)
        if n_left <= 0:  # a slow grammar has to read first what the step in progress samples
            return not (grammar.is_slow or grammar.is_busy)
        is_ready = grammar.prepare() or n_left > 1
        if not is_ready:
            grammar.when_done(self._wake)
        return is_ready


def begin_masks(drafted: Mapping[GrammarMatcher, Sequence[int]]) -> None:
    """Begins to compute, on other threads, which tokens may follow each grammar's known ones, and
    which may follow its drafted ones. All must be of one model."""
    looking = [grammar.look_ahead(tokens) for grammar, tokens in drafted.items() if tokens]
    unmasked = [active for active in drafted if active.has_begun and active.masked is None]
    for grammar in unmasked:
        grammar.prepare()  # begins it where it takes long
    unmasked = [grammar for grammar in unmasked if grammar.masked is None]
    jobs = [grammar.compute_mask for grammar in unmasked] + [masks.compute for masks in looking]
    if jobs:
        begun = next(iter(drafted)).worker.begin(jobs)
        for grammar, masked in zip(unmasked, begun, strict=False):
            grammar.begin_mask(masked)
        for ahead, computed in zip(looking, begun[len(unmasked) :], strict=True):
            ahead.computed = computed
