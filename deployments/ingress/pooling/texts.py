"""Texts as requests for vectors: their prompts, their special tokens, and the most they may be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import OutputParams
from deployments.ingress.generation.plan import ContextError, check_ids
from deployments.text.tokens.framing import Cut, Framed
from deployments.text.tokens.tokenizer import COUNTED_LIMITS, TextTokenizer

MAX_REPEATED_CHARACTERS = 4 << 20  # of what a request has once, in all texts that it makes of it
QUERY_NAMES = ("query", "search_query", "retrieval.query", "queries")
DOCUMENT_NAMES = ("document", "passage", "search_document", "retrieval.passage", "documents")
ROLE_NAMES = {
    **dict.fromkeys(QUERY_NAMES, QUERY_NAMES),
    **dict.fromkeys(DOCUMENT_NAMES, DOCUMENT_NAMES),
}

Text = str | Sequence[int | str]  # ids are taken as they are, strings among them are encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """The limits to which a request lets texts that are too long be cut.

    limit: -1 for the model's own; None: a whole that is too long is refused.
    per_text: as a Cut's.
    """

    limit: int | None = -1
    keeps_end: bool = False
    per_text: tuple[int | None, ...] = (None, None)


@dataclass(frozen=True, slots=True)
class PooledText:
    """One request to the engine. `second_at` as a GenerationRequest's."""

    ids: tuple[int, ...]
    output: OutputParams
    second_at: int = 0


class TextEncoder:
    def __init__(
        self,
        card: ModelCard,
        tokenizer: TextTokenizer,
        truncation: Truncation | None = None,
        *,
        special_tokens: bool = True,
    ) -> None:
        self._card = card
        self._tokenizer = tokenizer
        self._limit = max_input_tokens(card)
        self._special_tokens = special_tokens
        self._cut: Cut | None = None
        if truncation is not None:
            asked = truncation.limit
            limit = self._limit if asked == -1 else asked
            limit = None if limit is None else min(limit, self._limit)
            self._cut = Cut(
                limit=limit, keeps_end=truncation.keeps_end, per_text=truncation.per_text
            )

    def one(self, text: Text, output: OutputParams, param: str, prompt: str = "") -> PooledText:
        """`prompt` goes before a text. Raises Refused, about the field `param`."""
        if not isinstance(text, str):
            return PooledText(self._own_ids(text, param), output)
        return self._framed([prompt + text], output, param)

    def pair(self, first: str, second: str, output: OutputParams, param: str) -> PooledText:
        return self._framed([first, second], output, param)

    def within(
        self, before: str, after: str, text: str, output: OutputParams, param: str
    ) -> PooledText:
        """A text between the parts of a template, of which nothing is cut."""
        head = self._tokenizer.encode_hidden(before, self._limit)
        tail = self._tokenizer.encode_hidden(after, self._limit)
        cut, own = self._cut, len(head) + len(tail)
        if cut is not None:
            # The second text of a pair is the one within.
            limit = None if cut.limit is None else max(cut.limit - own, 0)
            cut = replace(cut, limit=limit, per_text=cut.per_text[1:])
        body = self._tokenizer.encode_within(text, self._limit, cut)
        return self._checked(Framed([*head, *body.ids, *tail]), output, param)

    def _framed(self, texts: Sequence[str], output: OutputParams, param: str) -> PooledText:
        framed = self._tokenizer.encode_framed(texts, self._limit, self._cut, self._special_tokens)
        return self._checked(framed, output, param)

    def _own_ids(self, parts: Sequence[int | str], param: str) -> tuple[int, ...]:
        """Special tokens are added only to a string that is the first part."""
        ids: Sequence[int] = [
            token_id for index, part in enumerate(parts) for token_id in self._part(part, index)
        ]
        check_ids(ids, self._card, param)
        if self._cut is not None:
            ids = self._cut_ids(ids, self._cut)
        self._check_length(len(ids), param)
        return tuple(ids)

    def _part(self, part: int | str, index: int) -> Sequence[int]:
        if isinstance(part, int):
            return (part,)
        is_framed = self._special_tokens and index == 0
        return self._tokenizer.encode_framed([part], self._limit, self._cut, is_framed).ids

    def _cut_ids(self, ids: Sequence[int], cut: Cut) -> Sequence[int]:
        limit = len(ids) if cut.limit is None else cut.limit
        return ids[max(len(ids) - limit, 0) :] if cut.keeps_end else ids[:limit]

    def _checked(self, framed: Framed, output: OutputParams, param: str) -> PooledText:
        self._check_length(len(framed.ids), param)
        second_at = framed.second_at if self._card.answers.takes_pairs else 0
        return PooledText(tuple(framed.ids), output, second_at)

    def _check_length(self, n_tokens: int, param: str) -> None:
        if not n_tokens:
            raise refused(f"`{param}` comes to no tokens", param)
        if n_tokens <= self._limit:
            return
        about = "about " if n_tokens > COUNTED_LIMITS * self._limit else ""
        message = (
            f"The model {self._card.name!r} takes at most {self._limit} tokens, and `{param}` has "
            f"{about}{n_tokens}; a request may have it cut"
        )
        raise Refused(ContextError(ErrorKind.CONTEXT_LENGTH, message, param, n_tokens, self._limit))


def check_repeated(n_characters: int, param: str, of_each: str) -> None:
    """`of_each` says what makes many long texts of a short request. Raises Refused."""
    if n_characters > MAX_REPEATED_CHARACTERS:
        raise refused(
            f"`{param}`: {of_each}, which repeats {n_characters} characters; at most "
            f"{MAX_REPEATED_CHARACTERS} are served",
            param,
        )


def max_input_tokens(card: ModelCard) -> int:
    return min(card.answers.max_input_tokens or card.context_length, card.context_length)


def named_prompt(card: ModelCard, name: str | None, param: str) -> str:
    """Returns the text before an input: the model's prompt of this name, or its default one."""
    prompts = dict(card.answers.prompts)
    if name is None:
        return prompts.get(card.answers.default_prompt, "")
    if name not in prompts:
        known = ", ".join(map(repr, prompts)) or "none"
        message = f"`{param}`: the model {card.name!r} has no prompt {name!r}; it has {known}"
        raise refused(message, param)
    return prompts[name]


def role_prompt(card: ModelCard, role: str, param: str) -> str:
    """The prompt for a role such as "query" or "search_document", by any of its names. A model that
    has no prompt for it treats all texts alike.
    """
    prompts = dict(card.answers.prompts)
    names = (role, *ROLE_NAMES.get(role, ()))
    found = next((name for name in names if name in prompts), None)
    if found is None and role not in ROLE_NAMES:
        return named_prompt(card, role, param)
    return named_prompt(card, found, param)
