"""The grammar of calls begins at what the parser takes for a call, wherever tokens are cut."""

import numpy as np
import pytest

from deployments.text.dialects.dialect import Dialect
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.dialects.registry import DIALECTS
from deployments.text.grammar.triggers import Trigger, TriggerScanner
from deployments.text.reply import fold_reply
from tests.effort import tries
from tests.text.cards import byte_level
from tests.text.dialects.test_replies import MARKS, Talk, baits_of, check, talk
from tests.text.dialects.test_transcripts import BY_DIALECT
from tests.text.dialects.transcripts import Table


@BY_DIALECT
@MARKS
@pytest.mark.parametrize("opened", [False, True])
def test_the_search_finds_what_the_parser_takes_for_a_call(
    table: Table, marks: str, opened: bool
) -> None:
    """Texts and their cuts into tokens are random."""
    constrained = talk(table, marks, opened=opened)
    dialect, rng = DIALECTS[table.dialect], np.random.default_rng(7)
    assert constrained.prompt.triggers is not None
    scanner = TriggerScanner(constrained.prompt.triggers, lambda one: b"")
    calls = [table.write([("ping", {"at": None})]), *map(table.write, ([("nope", {})],))]
    parts = [
        *dialect.marks,
        *calls,
        *baits_of(table),
        " ",
        "\n",
        "x",
        "日",
        "functools",
        "<function=",
    ]
    parts += [*"{[<>", '{"name": "ping"', '[ {"name" : "ping"', "[ping(", '{"arguments": {}, ']
    parts += [start for pair in more_thoughts(dialect) for start in pair]
    n_begun = 0
    for _ in range(tries(40, 1000)):
        chosen = [parts[rng.integers(len(parts))] for _ in range(rng.integers(1, 6))]
        cut = [
            part[: rng.integers(len(part)) + 1] if rng.random() < 0.3 else part for part in chosen
        ]
        text = "".join(cut)
        found, at = search(scanner, text.encode(), rng)
        assert (found, at) == search(scanner, text.encode(), rng)
        free = text.encode()[:at].decode()
        parser = constrained.prompt.parser()
        reply = fold_reply(
            [*parser.push(free[:-1] if found is not None else free), *parser.finish()]
        )
        assert reply.calls == (), text
        if found is not None and n_begun < tries(4, 20):
            n_begun += 1
            reply = constrained.heard(finished(constrained, free))
            assert len(reply.calls) >= 1, text
            check(reply, text)
    assert n_begun


def more_thoughts(dialect: Dialect) -> list[tuple[str, str]]:
    return [*dialect.thought_ends().items()] if isinstance(dialect, MarkedBlocks) else []


def search(scanner: TriggerScanner, raw: bytes, rng: np.random.Generator) -> tuple[int | None, int]:
    """The trigger in a text, and where it ends; the text comes in pieces."""
    state, at = scanner.start, 0
    while at < len(raw):
        n = int(rng.integers(1, 9))
        found = scanner.read_bytes(state, raw[at : at + n])
        if isinstance(found, Trigger):
            return found.number, min(at + n, len(raw)) - len(found.rest)
        state, at = found, at + n
    return None, len(raw)


def finished(talk: Talk, text: str) -> list[int]:
    """The tokens of a text that opens a call, and some end of it."""
    reply, ids = talk.says(text, byte_level())
    assert reply.grammar.has_begun, text
    rng = np.random.default_rng(len(text))
    while not reply.can_end():
        ids.append(int(rng.choice(reply.allowed())))
        assert reply.say(ids[-1])
    return ids


@BY_DIALECT
def test_no_mark_hides_another_one(table: Table) -> None:
    triggers = talk(table, "text").prompt.triggers
    assert triggers is not None
    for mode in triggers.modes:
        for marks in ([mark for mark, _ in mode.marks], [mark for mark, _ in mode.compact]):
            pairs = [(mark, other) for mark in marks for other in marks if mark != other]
            if mode.otherwise is None:
                assert not [pair for pair in pairs if pair[0] in pair[1][:-1]]
            else:
                assert not [pair for pair in pairs if pair[1].startswith(pair[0])]
