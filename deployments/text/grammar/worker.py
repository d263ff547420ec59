"""The process that reads the grammars of clients: it translates, checks and walks them.

A job is a line of JSON and the bytes of its texts, an answer a line of JSON. What an engine will
build of a grammar is built here first, and followed for some hundred tokens.
"""

import json
import random
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from deployments.sandbox.worker import serve, unbounded
from deployments.text.grammar.ll_tokenizer import ll_tokenizer
from deployments.text.grammar.matcher import (
    build_matcher,
    error_of,
    with_deep_stack,
    with_stack,
)

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

NICENESS = 5  # a request waits for it
MAX_MEMORY_BYTES = 2 << 30  # of addresses: vocabularies, and the stack of a deep grammar
MAX_CPU_S = 5.0  # of a job
WALKED_TOKENS = 256
WALK_CPU_S = 0.1  # after which a walk begins no further token
# Half of what the threads have on which an engine follows a grammar.
WALK_STACK_BYTES = 1 << 20
MAX_TOKENIZERS = 2
TOO_DEEP = "it is nested too deeply"
Told = dict[str, object]
SOME_BITS = re.compile(rb"[^\0]")


class Tokens:
    """A model's tokens, and which of them are short: long ones hardly ever end what they are in."""

    def __init__(self, tokenizer: "LLTokenizer") -> None:
        self.tokenizer = tokenizer
        bits = bytearray(-(-tokenizer.vocab_size // 32) * 4)
        for token_id in range(tokenizer.vocab_size):
            if len(tokenizer.decode_bytes([token_id])) <= 1:
                bits[token_id // 8] |= 1 << token_id % 8
        self._short = int.from_bytes(bits, "little")

    def choose(self, mask: bytes, rng: random.Random) -> int | None:
        """Any token of a mask, every other time a short one."""
        if rng.random() < 0.5:
            short = int.from_bytes(mask, "little") & self._short
            mask = short.to_bytes(len(mask), "little") if short else mask
        start = rng.randrange(len(mask))
        found = SOME_BITS.search(mask, start) or SOME_BITS.search(mask)
        if found is None:
            return None
        byte = mask[found.start()]
        return found.start() * 8 + rng.choice([bit for bit in range(8) if byte >> bit & 1])


class GrammarReader:
    def __init__(self) -> None:
        self._bytes: Tokens | None = None
        self._tokens: OrderedDict[str, Tokens] = OrderedDict()
        self._kinds: Mapping[str, Callable[[Mapping[str, Any], Sequence[str]], Told]] = {
            "gbnf": self._gbnf,
            "regex": self._regex,
            "check": self._check,
            "walk": self._walk,
        }

    def answer(self, line: bytes, jobs: BinaryIO, answers: BinaryIO) -> None:
        job = json.loads(line)
        texts = [jobs.read(n_bytes).decode() for n_bytes in job["texts"]]
        answers.write(json.dumps(self._told(job, texts)).encode() + b"\n")

    def _told(self, job: Mapping[str, Any], texts: Sequence[str]) -> Told:
        try:
            return self._kinds[job["kind"]](job, texts)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as failure:  # a panic in Rust is no Exception
            return {"panic": repr(failure)}

    def _gbnf(self, job: Mapping[str, Any], texts: Sequence[str]) -> Told:
        from deployments.text.grammar.gbnf import lark_of

        try:
            return {"lark": lark_of(texts[0])}
        except RecursionError:
            return {"refused": TOO_DEEP}
        except LookupError:
            return {"refused": "not a GBNF grammar: it ends too early"}
        except Exception as failure:  # its parser raises Exception itself
            return {"refused": f"not a GBNF grammar: {failure}"}

    def _regex(self, job: Mapping[str, Any], texts: Sequence[str]) -> Told:
        from llguidance import regex_to_lark

        return {"lark": regex_to_lark(texts[0])}

    def _check(self, job: Mapping[str, Any], texts: Sequence[str]) -> Told:
        """Validates a part of a grammar, and follows it in bytes. A failure then that is no crash
        does not count: with a model's tokens it may be right.
        """
        from llguidance import LLMatcher, LLTokenizer

        def validated() -> tuple[bool, list[str]]:
            return LLMatcher.validate_grammar_with_warnings(texts[0])

        failed, messages = with_deep_stack(texts[0], validated)
        if not failed:
            self._bytes = self._bytes or Tokens(LLTokenizer("byte"))
            _followed(texts[0], self._bytes)
        return {"failed": failed, "messages": messages}

    def _walk(self, job: Mapping[str, Any], texts: Sequence[str]) -> Told:
        """Why an engine could not follow a grammar. Who asks sends the tokenizer when it is asked
        for it.
        """
        key = job["tokens"]
        if key not in self._tokens:
            if len(texts) < 2:
                return {"needs_tokens": True}
            try:
                with unbounded():  # a large vocabulary takes seconds
                    self._tokens[key] = _tokens(texts[1], job["vocab_size"], job["eos"])
            except Exception as failure:  # of any kind: tokenizers and llguidance have no own one
                return {"error": "", "unfollowed": repr(failure)}
            if len(self._tokens) > MAX_TOKENIZERS:
                self._tokens.popitem(last=False)
        self._tokens.move_to_end(key)
        return {"error": _followed(texts[0], self._tokens[key])}


def _tokens(tokenizer_json: str, vocab_size: int, eos: Sequence[int]) -> Tokens:
    from tokenizers import Tokenizer

    source = Tokenizer.from_str(tokenizer_json)
    return Tokens(ll_tokenizer(source, vocab_size, frozenset(eos)))


def _followed(grammar: str, tokens: Tokens) -> str:
    """Why it can't be followed; "" if some answers could be made by it."""

    def follow() -> str:
        whole = build_matcher(grammar, tokens.tokenizer)
        return error_of(whole) if whole.is_error() else _walked(whole, tokens)

    return with_stack(WALK_STACK_BYTES, follow)


def _walked(whole: "LLMatcher", tokens: Tokens) -> str:
    rng = random.Random(0)
    matcher = whole.deep_copy()
    ends = time.thread_time() + WALK_CPU_S
    for _ in range(WALKED_TOKENS):
        if time.thread_time() > ends:
            break
        token_id = tokens.choose(matcher.compute_bitmask(), rng)
        is_over = token_id is None or not matcher.consume_token(token_id)
        if is_over or matcher.is_stopped():
            matcher = whole.deep_copy()
        else:
            matcher.compute_ff_tokens()
    return ""


if __name__ == "__main__":
    serve(
        GrammarReader().answer,
        niceness=NICENESS,
        max_memory_bytes=MAX_MEMORY_BYTES,
        max_cpu_s=MAX_CPU_S,
    )
