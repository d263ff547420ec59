"""The masks of one step: begun for all its rows before the model computes, collected behind it."""

from collections.abc import Mapping, Sequence
from concurrent.futures import wait

from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.grammar_matcher import GrammarMatcher

MASK_GRACE_S = 0.01  # that a step waits for masks when all else is computed


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


def begin_row_masks(batch: Batch, rows: Sequence[int]) -> None:
    tasks = [batch.tasks[row] for row in rows]
    begin_masks(
        {grammar: task.drafted for task in tasks if (grammar := task.active_grammar) is not None}
    )


def find_late_rows(batch: Batch, sampled_rows: Sequence[int]) -> frozenset[int]:
    """The rows to be sampled whose grammars do not know yet which tokens may follow."""
    grammars = {
        row: grammar
        for row in sampled_rows
        if (grammar := batch.tasks[row].active_grammar) is not None
    }
    late = late_masks([*grammars.values()]) if grammars else set()
    return frozenset(row for row, grammar in grammars.items() if grammar in late)


def late_masks(grammars: Sequence[GrammarMatcher]) -> set[GrammarMatcher]:
    """Returns the grammars whose masks are not there at the end of a short wait for all."""
    wait([future for grammar in grammars for future in grammar.begun], MASK_GRACE_S)
    late = {grammar for grammar in grammars if grammar.is_busy}
    for grammar in late:
        grammar.note_slow()
    return late
