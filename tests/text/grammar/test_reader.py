"""A grammar that ends the process that reads it is refused, and nobody else notices."""

import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import BinaryIO

import pytest

from deployments.sandbox.process import (
    N_PROCESSES,
    JobProcess,
    ProcessDiedError,
    ProcessPool,
    served_client,
)
from deployments.text.grammar import reader
from deployments.text.grammar.grammar import from_choice, from_json_schema, from_lark, from_regex
from deployments.text.grammar.matcher import FAILED
from deployments.text.grammar.reader import (
    BROKEN,
    WORKER,
    GrammarTokens,
    UnreadableGrammarError,
    check_followed,
    validated,
)
from tests.text.cards import byte_level, token_id
from tests.text.grammar.refusing import refusal

LEAST = -(1 << 63)
# The smallest inputs that end llguidance 1.9.1, and how: with a newer one try them again.
SEGMENTATION_FAULTS = {
    "of an integer": {"minimum": LEAST, "maximum": LEAST},
    "of floats": {"minimum": -1e30, "maximum": -1e29},
    "exclusive": {"exclusiveMinimum": -1e30, "exclusiveMaximum": -1e29},
}
PANIC = 'start: %regex {"substring_chunks":["",""]}'


def of_schema(schema: object) -> str:
    return json.dumps({"grammars": [{"json_schema": schema}]})


def of_lark(lark: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": lark}]})


def unreadable(ask: Callable[[], object]) -> str:
    with pytest.raises(UnreadableGrammarError) as caught:
        ask()
    assert validated(of_schema({"type": "object"})) == (False, [])
    return str(caught.value)


@pytest.mark.parametrize("bounds", SEGMENTATION_FAULTS.values(), ids=SEGMENTATION_FAULTS)
def test_a_grammar_that_breaks_the_process_is_refused(bounds: dict[str, object]) -> None:
    schema = {"type": "integer", **bounds}
    assert unreadable(lambda: validated(of_schema(schema))) == BROKEN
    within = f"start: %json {json.dumps({'items': schema})}"
    assert BROKEN in refusal(lambda: from_lark(within, "field")).message


def test_a_panic_is_a_refusal() -> None:
    assert unreadable(lambda: validated(of_lark(PANIC))) == FAILED
    assert FAILED in refusal(lambda: from_lark(PANIC, "field")).message


def tokens() -> GrammarTokens:
    known = byte_level()
    return GrammarTokens(known.to_str(), known.get_vocab_size(), (token_id(known, "<|im_end|>"),))


def test_a_whole_grammar_is_followed_with_the_models_tokens() -> None:
    for grammar in (from_regex("[a-f]{3}( [a-f]{3})*", "p"), of_lark("start: <|im_start|> /a+/")):
        check_followed(grammar, tokens())
    assert unreadable(lambda: check_followed(of_lark("start: <[5000]>"), tokens()))


def test_what_dies_of_something_else_is_tried_once_more() -> None:
    """Its process is killed between two jobs, as where a machine has no memory left."""
    assert from_choice(["it lives"], "p")
    with reader.process_pool.process() as process:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    assert from_choice(["died of something else"], "p")


def test_the_time_of_a_job_is_bounded_by_what_it_computes() -> None:
    def ask(jobs: BinaryIO, answers: BinaryIO) -> None:
        jobs.write(b"\n")
        jobs.flush()
        if not answers.readline():
            raise EOFError

    process = JobProcess("tests.text.grammar.endless", timeout_s=300)
    with pytest.raises(ProcessDiedError) as caught:
        process.run(ask)
    assert caught.value.is_spent


def test_a_client_never_has_all_processes() -> None:
    processes, gate, begun = ProcessPool(WORKER, 30), threading.Event(), threading.Semaphore(0)

    def occupy(client: str) -> None:
        served_client.set(client)
        with processes.process():
            begun.release()
            assert gate.wait(60)

    with ThreadPoolExecutor(2 * N_PROCESSES) as pool:
        try:
            slow = [
                pool.submit(copy_context().run, occupy, "slow") for _ in range(2 * N_PROCESSES - 1)
            ]
            for _ in range(N_PROCESSES - 1):
                assert begun.acquire(timeout=60)
            assert not begun.acquire(blocking=False)
            other = pool.submit(copy_context().run, occupy, "other")
            assert begun.acquire(timeout=60)
        finally:
            gate.set()
        for job in (*slow, other):
            job.result()


def test_what_was_said_of_a_grammar_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    write = partial(from_json_schema, {"const": "remembered"}, "p")
    first = write()
    monkeypatch.setattr(reader, "process_pool", None)
    assert write() == first
