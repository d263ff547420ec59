"""Encodes and decodes the text of one model, from its card alone. Never imports torch.

The text of ids is the concatenation of their bytes, as UTF-8 with U+FFFD for invalid bytes.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import cached_property
from types import MappingProxyType
from typing import cast

from jinja2 import TemplateError
from tokenizers import Encoding, Tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.text.tokens.control_tokens import GUARD, ControlTokens, unmarked
from deployments.text.tokens.framing import Cut, Framed, frame
from deployments.text.tokens.token_bytes import TokenTexts

TEMPLATE_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError
)  # fmt: skip
NOTHING: Mapping[str, object] = MappingProxyType({})
# Characters. Tokenizers use hundreds of bytes for each while they work, so only one large text is
# encoded at a time.
LARGE = 1 << 18
COUNTED_LIMITS = 4
CHARACTERS_PER_TOKEN = 32  # that is cut: more than a text has of them
_one_large = threading.Lock()
ADDED_TOKEN_FIELDS = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
RESERVED_NAMES = {
    "conversations",
    "messages",
    "tools",
    "chat_template",
    "return_assistant_tokens_mask",
    "continue_final_message",
    "add_generation_prompt",
    "self",  # jinja's own
}
LACKS = re.compile(r"'?\b(\w+)(?: object)?'? has no (attribute|element) ")
JSON_TYPES = {
    "dict": "an object",
    "list": "a list",
    "str": "a string",
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "None": "null",
}


class TextTokenizer:
    def __init__(self, card: ModelCard) -> None:
        self._model = card.name
        self._template = card.chat_template
        self._parses_special = card.parses_special
        self._special = dict(card.special_tokens)
        self._tokenizer = Tokenizer.from_str(card.tokenizer_json)
        self._tokenizer.no_truncation()  # limits of the training remain in tokenizer.json
        self._tokenizer.no_padding()
        self._texts = TokenTexts(self._tokenizer)
        templates = f"{card.chat_template}{card.tool_template}"
        self.control = ControlTokens(self._tokenizer, templates)
        added = self._tokenizer.get_added_tokens_decoder()
        self._marks = {
            token.content: token_id
            for token_id, token in added.items()
            if token.special or (token.content[:1] == "<" and token.content[-1:] == ">")
        }

    @property
    def starts_with_space(self) -> bool:
        """Whether the first token of a text carries a space that the text does not have."""
        return self._texts.starts_with_space

    def encode(
        self, text: str, add_special_tokens: bool, limit: int | None = None
    ) -> Sequence[int]:
        """Returns the ids of a text. With `limit`, more ids than that are only good to count.

        A text with more tokens is encoded in parts, because the whole could take gigabytes. None of
        its ids is kept, and all are 0. Beyond COUNTED_LIMITS times the limit their number is an
        estimate.
        """
        if limit is not None and len(text) > max(LARGE, limit):
            count = self._count(text, COUNTED_LIMITS * limit)
            if _is_beyond(count, limit):
                return bytes(count)
        return _encode(self._tokenizer, text, add_special_tokens)

    def encode_hidden(self, text: str, limit: int | None = None) -> Sequence[int]:
        """The ids of a rendered prompt in which `control` has hidden what is no control token.
        `limit` is as that of `encode`.
        """
        if GUARD not in text:
            return self.encode(text, False, limit)
        if limit is not None and len(text) > max(LARGE, limit):
            count = self._count(text, COUNTED_LIMITS * limit)
            if _is_beyond(count, limit):
                return bytes(count)
        return _encode(self._literal, self.control.marked(text), False)

    def encode_literally(
        self, text: str, add_special_tokens: bool, limit: int | None = None
    ) -> list[int]:
        """Control tokens in the text are encoded as plain text. With `limit`, a text with more
        tokens is encoded in parts, each as if it stood alone.
        """
        text = unmarked(text)
        if limit is not None and len(text) > max(LARGE, limit):
            with _one_large:
                ids = [each for part in _parts(text) for each in _encoding(self._literal, part).ids]
            if _is_beyond(len(ids), limit):
                return ids
        return _encode(self._literal, text, add_special_tokens)

    def encode_within(self, text: str, limit: int, cut: Cut | None) -> Framed:
        """A text that fills a template, without special tokens; else as `encode_framed`."""
        if self._parses_special or not self.control.is_spelled(text):
            return self.encode_framed([text], limit, cut, special_tokens=False)
        return self._framed([unmarked(text)], limit, cut, self._literal, special_tokens=False)

    def encode_framed(
        self, texts: Sequence[str], limit: int, cut: Cut | None, special_tokens: bool = True
    ) -> Framed:
        """One text or a pair, with the model's special tokens. Without `cut`, a text with more than
        `limit` tokens may only be counted, as `encode` does.
        """
        return self._framed(texts, limit, cut, self._tokenizer, special_tokens)

    def _framed(
        self,
        texts: Sequence[str],
        limit: int,
        cut: Cut | None,
        tokenizer: Tokenizer,
        special_tokens: bool,
    ) -> Framed:
        kept: list[str] = []
        for index, text in enumerate(texts):
            most = None if cut is None else cut.most(index)
            if cut is not None and most is not None:
                reach = max(LARGE, CHARACTERS_PER_TOKEN * most)
                text = text[-reach:] if cut.keeps_end else text[:reach]
            elif len(text) > max(LARGE, limit):
                count = self._count(text, COUNTED_LIMITS * limit)
                if _is_beyond(count, limit):
                    return Framed([0] * count)
            kept.append(text)
        with _one_large if sum(map(len, kept)) > LARGE else nullcontext():
            encoded = [_encoding(tokenizer, text) for text in kept]
            return frame(tokenizer, encoded, cut, special_tokens)

    def _count(self, text: str, limit: int) -> int:
        """Beyond the limit it is an estimate, from the beginning of the text."""
        count = length = 0
        for part in _parts(text):
            with _one_large:
                count += len(_encoding(self._tokenizer, part))
            length += len(part)
            if count > limit:
                break
        return count * len(text) // length

    @cached_property
    def _literal(self) -> Tokenizer:
        return self.control.literal_tokenizer()

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence. `Detokenizer` decodes continuations."""
        text = b"".join(self.text_bytes(token_id, skip_special_tokens) for token_id in ids)
        if self.starts_with_space:
            text = text.removeprefix(b" ")
        return text.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of a token; none for an id outside the vocabulary."""
        return self._texts.token_bytes(token_id)

    def token_name(self, token_id: int) -> str:
        """The token as the vocabulary spells it; "" for an id outside the vocabulary."""
        return self._tokenizer.id_to_token(token_id) or ""

    @property
    def added_tokens(self) -> dict[str, dict[str, object]]:
        """The tokens beside the trained vocabulary, by id, as tokenizer_config.json has them."""
        added = self._tokenizer.get_added_tokens_decoder()
        return {
            str(token_id): {name: getattr(token, name) for name in ADDED_TOKEN_FIELDS}
            for token_id, token in added.items()
        }

    def special_id(self, text: str) -> int | None:
        """The id of the special token with this text, if there is one."""
        token_id = self._tokenizer.token_to_id(text)
        return token_id if token_id in self._texts.specials else None

    def mark_id(self, text: str) -> int | None:
        """The id of the added token with this text, if llguidance does not treat it as text.

        To llguidance all added tokens in angle brackets are special, even if the tokenizer has them
        as normal ones.
        """
        return self._marks.get(text)

    def text_bytes(self, token_id: int, skip_special_tokens: bool) -> bytes:
        return self._texts.text_bytes(token_id, skip_special_tokens)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, object] = NOTHING,
        template: str = "",
    ) -> str:
        """The prompt of a conversation, by `template` or the model's own. Encode it without special
        tokens.

        Raises Refused if the model has no template, or if its template rejects the messages.
        """
        if self._template is None:
            raise refused(f"Model {self._model!r} has no chat template", "messages")
        self._check_names(template_kwargs)
        try:
            rendered, _ = render_jinja_template(
                conversations=[list(messages)],
                tools=None if tools is None else list(tools),
                chat_template=template or self._template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **self._special,
                **template_kwargs,
            )
        except TEMPLATE_FAILURES as failure:
            message = f"`messages`: the model's chat template refuses them{_reason(failure)}"
            raise refused(message, "messages") from failure
        return cast(str, rendered[0])

    def render_texts(
        self, messages: Sequence[Mapping[str, object]], template_kwargs: Mapping[str, object]
    ) -> str:
        """Renders messages with a role and a text. Their control tokens are hidden, unless the
        model parses them.
        """
        if self._parses_special:
            return self.render_chat(messages, template_kwargs=template_kwargs)
        guarded = [
            {**message, "content": self.control.guard(message["content"])} for message in messages
        ]
        kwargs = {name: self.control.guard(value) for name, value in template_kwargs.items()}
        return self.control.hide(self.render_chat(guarded, template_kwargs=kwargs))

    def _check_names(self, template_kwargs: Mapping[str, object]) -> None:
        for name in template_kwargs:
            if name in RESERVED_NAMES or name in self._special:
                field = f"chat_template_kwargs.{name}"
                raise refused(f"`{field}` is set by the server", field)


def _reason(failure: Exception) -> str:
    """Returns the template's own words. Python's words would tell a client nothing."""
    if not isinstance(failure, TemplateError):
        return ", or what `chat_template_kwargs` sets"
    words = LACKS.sub(
        lambda found: f"{JSON_TYPES.get(found[1], 'a value')} has no field ", str(failure)
    )
    return f": {words}"


Key = tuple[str, str | None, str | None, bool, tuple[tuple[str, str], ...]]


class TokenizerCache:
    """The last used tokenizers, each built once. Models with the same files share one.

    `capacity` is in characters of tokenizer.json. Each takes about ten bytes of memory.
    """

    def __init__(self, capacity: int = 1 << 27) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._built: OrderedDict[Key, Future[TextTokenizer]] = OrderedDict()  # or being built

    def is_built(self, card: ModelCard) -> bool:
        building = self._built.get(_key(card))
        return building is not None and building.done()

    def get(self, card: ModelCard) -> TextTokenizer:
        """Takes up to seconds for a tokenizer that is not built; call it off the event loop then.

        Callers of other tokenizers do not wait for it.
        """
        ours: Future[TextTokenizer] = Future()
        with self._lock:
            building = self._built.setdefault(_key(card), ours)
            self._built.move_to_end(_key(card))
            self._make_room()
        if building is ours:
            self._build(card, ours)
        return building.result()

    def _build(self, card: ModelCard, building: Future[TextTokenizer]) -> None:
        try:
            building.set_result(TextTokenizer(card))
        except BaseException as error:  # a panic in the library's Rust is no Exception
            with self._lock:
                self._built.pop(_key(card), None)
            building.set_exception(error)

    def _make_room(self) -> None:
        """The last used one always stays."""
        n_characters = sum(len(tokenizer_json) for tokenizer_json, *_ in self._built)
        while n_characters > self._capacity and len(self._built) > 1:
            (tokenizer_json, *_), _ = self._built.popitem(last=False)
            n_characters -= len(tokenizer_json)


def _key(card: ModelCard) -> Key:
    template, tools = card.chat_template, card.tool_template
    return card.tokenizer_json, template, tools, card.parses_special, card.special_tokens


def _encode(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    with _one_large if len(text) > LARGE else nullcontext():
        ids: list[int] = _encoding(tokenizer, text, add_special_tokens).ids
    return ids


def _is_beyond(count: int, limit: int) -> bool:
    """Whether the whole has more tokens than the limit, where its parts have so many."""
    return count > limit + limit // 16


def _encoding(tokenizer: Tokenizer, text: str, add_special_tokens: bool = False) -> Encoding:
    # As a batch of one: `encode` itself holds the GIL, and takes longer.
    [encoding] = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    return encoding


def _parts(text: str) -> Iterator[str]:
    """Cut before spaces, because hardly any token goes across."""
    start = 0
    while start < len(text):
        end = start + LARGE
        if end < len(text):
            space = text.rfind(" ", end - 1024, end)
            end = end if space < 0 else space
        yield text[start:end]
        start = end
