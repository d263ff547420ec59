"""A grammar is compiled beside whatever else goes on; what can't be is refused; all is bounded."""

import asyncio
import queue
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import llguidance
import pytest
from tokenizers import Tokenizer, models

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import SamplingParams
from deployments.engine.needs.grammar import compiler as compiling
from deployments.engine.needs.grammar.compiler import GrammarCompiler
from deployments.text.grammar.grammar import from_choice, from_lark, from_regex
from tests.engine.drive import (
    PATIENCE_S,
    Engine,
    Outcome,
    Record,
    ascii_text,
    ascii_tokenizer,
    engine,
    random_ids,
    request,
    roomy,
)
from tests.models import VOCAB

PROMPTS = (random_ids(13, seed=1), random_ids(5, seed=2), random_ids(21, seed=3))
WORDS = SamplingParams(temperature=2.5, seed=11)
AB = request("r", PROMPTS[0], WORDS, grammar=from_choice(["ab"], "choice"))


def say(running: Engine, grammar: str) -> Outcome:
    return running.run(request("r", PROMPTS[0], WORDS, max_tokens=60, grammar=grammar))[0]


class Slow:
    """A tokenizer.json that takes until it is let through."""

    def __init__(self) -> None:
        self.wanted, self.given = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.wanted.set()
        assert self.given.wait(PATIENCE_S)
        return ascii_tokenizer()

    @asynccontextmanager
    async def compiling(self, running: Engine) -> AsyncIterator[asyncio.Task[Record]]:
        """Around what happens while a request waits for its grammar."""
        waiting = asyncio.create_task(running.follow(AB))
        assert await asyncio.to_thread(self.wanted.wait, PATIENCE_S)
        yield waiting
        assert not waiting.done()
        self.given.set()


@pytest.mark.parametrize(
    "grammar",
    ["start: nothing", "{", "[]", from_lark("start: <[5000]>", "g"), "\ud800", "x" * 2**19],
)
def test_a_grammar_that_does_not_compile_is_refused_and_the_engine_goes_on(grammar: str) -> None:
    with engine() as running:
        for _ in range(2):
            refused = say(running, grammar)
            assert refused.token_ids == ()
            assert refused.error is not None
            assert refused.error.kind is ErrorKind.INVALID_REQUEST
            assert refused.error.param == "grammar"
        assert say(running, from_regex("[a-f]{5}", "regex")).error is None


def test_without_llguidance_a_grammar_is_refused_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with engine() as running:
        refused, free = running.run(
            request("r", PROMPTS[0], grammar="start: /a/"), request("s", PROMPTS[0], max_tokens=2)
        )
    assert refused.error is not None
    assert refused.error.kind is ErrorKind.NOT_SUPPORTED
    assert len(free.token_ids) == 2


def test_a_model_whose_tokens_are_no_text_takes_no_grammar() -> None:
    with engine(tokenizer_json=lambda: Tokenizer(models.BPE({"a": 0}, [])).to_str()) as running:
        refused = say(running, "start: /a/")
    assert refused.error is not None
    assert refused.error.kind is ErrorKind.NOT_SUPPORTED


def test_requests_whose_grammars_compile_are_waiting_requests() -> None:
    async def play(running: Engine) -> tuple[Outcome, Outcome]:
        async with slow.compiling(running) as waiting:
            assert running.core.stats().waiting_requests == 1
            refused = (await running.follow(AB)).outcome
        return (await waiting).outcome, refused

    slow = Slow()
    with engine(tokenizer_json=slow, limits=roomy(max_waiting=1)) as running:
        waiting, refused = asyncio.run(play(running))
        assert running.core.stats().waiting_requests == 0
    assert ascii_text(waiting.token_ids) == "ab"
    assert refused.error is not None
    assert refused.error.kind is ErrorKind.OVERLOADED


def test_a_slow_grammar_keeps_nobody_waiting() -> None:
    async def play(running: Engine) -> tuple[Outcome, Outcome]:
        async with slow.compiling(running) as waiting:
            running.core.check_health()
            free = await running.follow(request("free", PROMPTS[1], max_tokens=5))
        return (await waiting).outcome, free.outcome

    slow = Slow()
    with engine(tokenizer_json=slow) as running:
        waiting, free = asyncio.run(play(running))
    assert ascii_text(waiting.token_ids) == "ab"
    assert len(free.token_ids) == 5


def test_a_known_grammar_waits_for_no_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where as many compile as there are threads for it."""
    wanted, given = threading.Event(), threading.Event()
    matcher = llguidance.LLMatcher

    def slow_matcher(*args: object, **options: object) -> object:
        wanted.set()
        assert given.wait(PATIENCE_S)
        return matcher(*args, **options)  # type: ignore[arg-type]

    async def play(running: Engine) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        other = request("s", PROMPTS[1], WORDS, grammar=from_choice(["ba"], "choice"))
        await running.follow(AB)
        monkeypatch.setattr(llguidance, "LLMatcher", slow_matcher)
        waiting = asyncio.create_task(running.follow(other))
        assert await loop.run_in_executor(ThreadPoolExecutor(1), wanted.wait, PATIENCE_S)
        assert ascii_text((await running.follow(AB)).outcome.token_ids) == "ab"
        assert not waiting.done()
        given.set()
        assert ascii_text((await waiting).outcome.token_ids) == "ba"

    with engine() as running:
        asyncio.run(play(running))


@pytest.mark.parametrize("beside", [False, True])
def test_an_abort_while_a_grammar_compiles_is_not_lost(beside: bool) -> None:
    """Whether an event loop waits for the grammar or a plain thread compiles it itself."""

    def abort_and_answer() -> str:
        assert running.core.stats().waiting_requests == 1
        running.core.abort("another")
        running.core.abort("r")
        return ascii_tokenizer()

    one = request("r", PROMPTS[0], WORDS, grammar=from_regex("[a-f]+", "regex"))
    with engine(tokenizer_json=abort_and_answer) as running:
        outcome = (running.run_together if beside else running.run)(one)[0]
        assert outcome.finish_reason is FinishReason.ABORT
        assert running.core.stats().waiting_requests == 0


def test_leaving_while_a_grammar_compiles_leaves_nothing_behind() -> None:
    async def play(running: Engine) -> None:
        async with slow.compiling(running) as waiting:
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    slow = Slow()
    with engine(tokenizer_json=slow) as running:
        asyncio.run(play(running))
        assert running.core.stats().total_requests == 0
        assert running.core.stats().waiting_requests == 0


def test_an_engine_that_stops_while_a_grammar_compiles_ends_its_request() -> None:
    async def play(running: Engine) -> Outcome:
        async with slow.compiling(running) as waiting:
            await asyncio.get_running_loop().run_in_executor(None, running.core.shutdown)
        return (await waiting).outcome

    slow = Slow()
    with engine(tokenizer_json=slow) as running:
        outcome = asyncio.run(play(running))
    assert outcome.error is not None
    assert outcome.error.kind is ErrorKind.UNAVAILABLE


def test_the_bytes_of_grammars_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grammars in use count, those that were used give way, and the same text counts once."""
    grammars = [from_regex(f"[a-f]{{{n}}}", "regex") for n in (10, 11, 12)]
    monkeypatch.setattr(compiling, "MAX_ALIVE_BYTES", 2 * len(grammars[0]))

    first, second, third = (
        request("r", PROMPTS[0], WORDS, max_tokens=60, grammar=grammar) for grammar in grammars
    )
    with engine() as running:
        *accepted, refused = running.run_at_once(first, second, second, third)
        later = [running.run(req)[0] for req in (first, second, third)]
    assert refused.error is not None
    assert refused.error.kind is ErrorKind.OVERLOADED
    assert [len(outcome.token_ids) for outcome in accepted] == [10, 11, 11]
    assert [len(outcome.token_ids) for outcome in later] == [10, 11, 12]


def test_a_fault_that_passes_is_not_taken_for_the_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    grammar = from_regex("[a-f]{5}", "regex")
    with engine() as running:
        with monkeypatch.context() as broken:
            broken.setattr(llguidance, "LLMatcher", exhausted)
            with pytest.raises(MemoryError):
                say(running, grammar)
        assert say(running, grammar).finish_reason is FinishReason.STOP


def test_the_scheduler_is_woken_once_a_grammar_has_read_a_token_and_not_before() -> None:
    free, woken = threading.Event(), queue.SimpleQueue[None]()
    ends = frozenset({VOCAB - 1})
    compiler = GrammarCompiler(ascii_tokenizer, VOCAB, ends, wake=lambda: woken.put(None))
    asked = request("r", PROMPTS[0], grammar=from_regex("a+", "regex"))
    grammar = compiler.open(asked, frozenset())
    assert not grammar.defers(ord("a"))  # it is read at once
    grammar.note_slow()

    def wait() -> None:
        free.wait(PATIENCE_S)

    grammar.worker.begin_long(wait, 0.0)
    assert grammar.defers(ord("a"))
    assert woken.empty()
    assert not grammar.is_read
    free.set()
    for _ in range(2):  # the job before it, and its own
        woken.get(timeout=PATIENCE_S)
    assert grammar.is_read
    compiler.stop()
