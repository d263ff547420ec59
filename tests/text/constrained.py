"""Texts that a grammar allows: with a token a byte, or as a request's grammar with a tokenizer."""

from collections.abc import Sequence
from functools import cache
from typing import Protocol

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from tokenizers import Tokenizer

from deployments.contract.grammar_triggers import GrammarTriggers
from deployments.contract.requests import GenerationRequest
from deployments.engine.needs.grammar.compiler import GrammarCompiler
from deployments.engine.needs.grammar.grammar_need import begin_masks
from tests.text.cards import byte_level, token_id


class Bytes:
    """A tokenizer of one token a byte, as llguidance asks for it."""

    eos_token_id = 256
    bos_token_id = None
    tokens = tuple(bytes([i]) for i in range(256)) + (b"<end>",)
    special_token_ids = (256,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(Bytes()))


def allows(grammar: str, text: str) -> bool:
    matcher = LLMatcher(tokenizer(), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids = list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


class Asked(Protocol):
    """A request or a prompt."""

    @property
    def grammar(self) -> str: ...

    @property
    def triggers(self) -> GrammarTriggers | None: ...


@cache
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    ends = frozenset({token_id(tokenizer, "<|im_end|>")})
    n = tokenizer.get_vocab_size()
    return GrammarCompiler(lambda: tokenizer.to_str(), n, ends, wake=lambda: None)


class ConstrainedReply:
    """A new reply, constrained by its grammar as in an engine."""

    def __init__(self, asked: Asked, tokenizer: Tokenizer) -> None:
        self.end = token_id(tokenizer, "<|im_end|>")
        request = GenerationRequest(
            request_id="r", prompt_ids=(1,), grammar=asked.grammar, triggers=asked.triggers
        )
        self.grammar = compiler(tokenizer).open(request, frozenset({self.end}))
        self._all = range(tokenizer.get_vocab_size())

    def allowed(self) -> Sequence[int]:
        """Returns the tokens that may follow, as far as that is known before one is sampled."""
        if self.grammar.is_over:
            return []
        if not self.grammar.is_masking:
            return self._all
        begin_masks({self.grammar: ()})
        mask = np.unpackbits(self.grammar.mask(0).view(np.uint8), bitorder="little")
        return [token for token in np.flatnonzero(mask).tolist() if token in self._all]

    def can_end(self) -> bool:
        return self.grammar.is_over or self.end in self.allowed()

    def say(self, token_id: int) -> bool:
        """Whether the reply goes on with the token."""
        if token_id not in self.allowed() or self.grammar.refuses(token_id):
            return False
        self.grammar.advance(token_id)
        return True


def may_say(asked: Asked, text: str) -> bool:
    """Whether the text may be all of a reply."""
    tokenizer = byte_level()
    reply = ConstrainedReply(asked, tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return all(map(reply.say, ids)) and reply.can_end()
