"""Has grammars of clients read in processes of their own: a grammar that ends one is refused.

What was said of a grammar is remembered. One in which a process died is tried once more in a fresh
process, because the first may have died of something else.
"""

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any, BinaryIO

from deployments.sandbox.process import Exchange, JobProcess, ProcessDiedError, ProcessPool
from deployments.text.grammar.matcher import FAILED

log = logging.getLogger(__name__)

WORKER = "deployments.text.grammar.worker"
N_TRIES = 2
TIMEOUT_S = 120.0  # of a job, whose time of a processor is bounded by the process itself
MAX_REMEMBERED_BYTES = 8 << 20
BYTES_PER_ANSWER = 512  # beside its text
BROKEN = "it breaks the compiler of grammars, or needs too much memory"
LATE = "it takes too long to compile, or to follow"

Told = dict[str, Any]


class UnreadableGrammarError(Exception):
    """The grammar can't be used; the message says why."""


class NoReaderError(Exception):
    """This server has no llguidance."""


@dataclass(frozen=True, slots=True)
class GrammarTokens:
    """The tokens of a model that a grammar is followed with."""

    tokenizer_json: str = field(repr=False)
    vocab_size: int
    eos: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"{_digest(self.tokenizer_json)} {self.vocab_size} {self.eos}"


class _Remembered:
    """The last answers, by digests of what was asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, tuple[Told, int]] = OrderedDict()
        self._n_bytes = 0

    def get(self, key: bytes) -> Told | None:
        with self._lock:
            if key not in self._answers:
                return None
            self._answers.move_to_end(key)
            return self._answers[key][0]

    def add(self, key: bytes, told: Told) -> None:
        n_bytes = BYTES_PER_ANSWER + len(str(told.get("lark", "")))
        with self._lock:
            _, before = self._answers.pop(key, (None, 0))
            self._answers[key] = told, n_bytes
            self._n_bytes += n_bytes - before
            while self._n_bytes > MAX_REMEMBERED_BYTES:
                _, (_, gone) = self._answers.popitem(last=False)
                self._n_bytes -= gone


process_pool = ProcessPool(WORKER, TIMEOUT_S)
_remembered = _Remembered()


def lark_of_gbnf(gbnf: str) -> str:
    """Raises UnreadableGrammarError and NoReaderError, as all of these do."""
    return _lark({"kind": "gbnf"}, gbnf)


def lark_of_regex(regex: str) -> str:
    """Returns the text that stands between slashes in Lark."""
    return _lark({"kind": "regex"}, regex)


def validated(grammar: str) -> tuple[bool, Sequence[str]]:
    """Whether llguidance refuses it, and why; or its warnings."""
    told = _asked({"kind": "check"}, grammar)
    return told["failed"], told["messages"]


def check_followed(grammar: str, tokens: GrammarTokens) -> None:
    """Raises UnreadableGrammarError also for one that can't be followed with these tokens."""
    job = {"kind": "walk", "tokens": tokens.key, "vocab_size": tokens.vocab_size}
    told = _asked({**job, "eos": tokens.eos}, grammar, tokens.tokenizer_json)
    if "unfollowed" in told:  # an engine has no grammars for this model, and says so
        log.warning("a grammar is not tried with a model's tokens: %s", told["unfollowed"])
    if told["error"]:
        raise UnreadableGrammarError(told["error"])


def _lark(job: Told, text: str) -> str:
    told = _asked(job, text)
    if "refused" in told:
        raise UnreadableGrammarError(told["refused"])
    lark: str = told["lark"]
    return lark


def _asked(job: Told, text: str, tokenizer_json: str | None = None) -> Told:
    if find_spec("llguidance") is None:
        raise NoReaderError
    asked = json.dumps(job).encode()
    try:
        key = blake2b(text.encode(), key=blake2b(asked).digest(), digest_size=16).digest()
    except UnicodeEncodeError as failure:
        raise UnreadableGrammarError(str(failure)) from failure
    told = _remembered.get(key) or _tried(key, partial(_exchanged, job, text, tokenizer_json))
    if "unreadable" in told:
        raise UnreadableGrammarError(told["unreadable"])
    return told


def _tried(key: bytes, exchange: Exchange[Told]) -> Told:
    """The answer, which is remembered under the key."""
    with process_pool.process() as process:
        told = _run(process, exchange)
    _remembered.add(key, told)
    return told


def _run(process: JobProcess, exchange: Exchange[Told]) -> Told:
    """Raises UnreadableGrammarError.

    It may be no fault of the grammar: the machine may be busy.
    """
    for _ in range(N_TRIES):
        try:
            told = process.run(exchange)
        except ProcessDiedError as death:
            if death.is_late:
                raise UnreadableGrammarError(LATE) from death
            if death.is_spent:
                return {"unreadable": LATE}
        else:
            return {"unreadable": FAILED} if "panic" in told else told
    return {"unreadable": BROKEN}


def _exchanged(
    job: Told, text: str, tokenizer_json: str | None, jobs: BinaryIO, answers: BinaryIO
) -> Told:
    told = _sent(job, [text], jobs, answers)
    if "needs_tokens" in told and tokenizer_json is not None:
        told = _sent(job, [text, tokenizer_json], jobs, answers)
    return told


def _sent(job: Told, texts: Sequence[str], jobs: BinaryIO, answers: BinaryIO) -> Told:
    encoded = [text.encode() for text in texts]
    jobs.write(json.dumps({**job, "texts": [*map(len, encoded)]}).encode() + b"\n")
    jobs.writelines(encoded)
    jobs.flush()
    told: Told = json.loads(answers.readline())
    return told


@lru_cache(maxsize=4)
def _digest(tokenizer_json: str) -> str:
    return blake2b(tokenizer_json.encode(), digest_size=16).hexdigest()
