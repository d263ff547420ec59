"""Prompts for infilling (fill in the middle, FIM), with the tokens that a model was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from deployments.text.tokens.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class FimTokens:
    """The text of a family's tokens. Without `middle` the suffix comes first in a prompt.

    `repository` comes before the name of a repository, and `file` before the name of a file in it.
    An answer ends at any of these tokens, and at the `others` of the family.
    """

    prefix: str
    suffix: str
    middle: str = ""
    repository: str = ""
    file: str = ""
    others: tuple[str, ...] = ()

    @property
    def ends(self) -> tuple[str, ...]:
        known = (self.prefix, self.suffix, self.middle, self.repository, self.file, *self.others)
        return tuple(filter(None, known))


MAX_TOKEN_CHARACTERS = 16  # few tokens of text are longer, so a longer text cannot fit
SNIPPET = "\n\n--- snippet ---\n\n"  # before a file, for models without a token for files
FORMATS = (
    FimTokens(  # Qwen Coder, CodeGemma's with a separator, Granite's newer ones
        prefix="<|fim_prefix|>",
        suffix="<|fim_suffix|>",
        middle="<|fim_middle|>",
        repository="<|repo_name|>",
        file="<|file_sep|>",
        others=("<|fim_pad|>", "<|file_separator|>", "<|reponame|>", "<|filename|>"),
    ),
    FimTokens(  # StarCoder, SantaCoder, SmolLM, Granite
        prefix="<fim_prefix>",
        suffix="<fim_suffix>",
        middle="<fim_middle>",
        repository="<repo_name>",
        file="<file_sep>",
        others=("<fim_pad>", "<reponame>", "<filename>"),
    ),
    FimTokens(
        prefix="<fim-prefix>", suffix="<fim-suffix>", middle="<fim-middle>", others=("<fim-pad>",)
    ),
    FimTokens(  # DeepSeek Coder: the hole is in the place of the middle
        prefix="<\uff5cfim\u2581begin\uff5c>",
        suffix="<\uff5cfim\u2581hole\uff5c>",
        middle="<\uff5cfim\u2581end\uff5c>",
    ),
    FimTokens(  # GLM
        prefix="<|code_prefix|>", suffix="<|code_suffix|>", middle="<|code_middle|>"
    ),
    FimTokens(prefix="<|fim_begin|>", suffix="<|fim_hole|>", middle="<|fim_end|>"),
    FimTokens(  # Code Llama
        prefix="\u2581<PRE>", suffix="\u2581<SUF>", middle="\u2581<MID>", others=("\u2581<EOT>",)
    ),
    FimTokens(prefix="<PRE>", suffix="<SUF>", middle="<MID>", others=("<EOT>", "<PAD>")),
    FimTokens(prefix="[PREFIX]", suffix="[SUFFIX]"),  # Codestral
)


def infill_ids(
    tokenizer: TextTokenizer, prefix: str, suffix: str, limit: int | None = None
) -> list[int] | None:
    """The prompt for the text between the two; None if the model was not trained to infill.

    FIM tokens in the texts are encoded as plain text. `limit` is TextTokenizer's, for each text.
    """
    tokens = _format_of(tokenizer)
    return None if tokens is None else _PromptWriter(tokenizer, tokens).ids(prefix, suffix, limit)


def fitted_ids(
    tokenizer: TextTokenizer,
    prefix: str,
    suffix: str,
    extra: Sequence[tuple[str, str]],
    room: int,
) -> list[int] | None:
    """The same prompt after `extra`, other files as (name, text), the least important first.

    If it exceeds `room` tokens, the first files are left out. If it still does, so are the parts
    that are farthest from the middle.
    """
    tokens = _format_of(tokenizer)
    if tokens is None:
        return None
    return _PromptWriter(tokenizer, tokens).fitted(prefix, suffix, extra, room)


def infill_ends(tokenizer: TextTokenizer) -> tuple[int, ...]:
    """The tokens that a model writes when the middle is complete: the next file, or another part.

    Few models list these among their EOS tokens.
    """
    tokens = _format_of(tokenizer)
    found = (_ids_of(tokenizer, token) for token in (tokens.ends if tokens else ()))
    return tuple(chain(*found))


class _PromptWriter:
    def __init__(self, tokenizer: TextTokenizer, tokens: FimTokens) -> None:
        self._tokenizer = tokenizer
        self._tokens = tokens

    def ids(self, prefix: str, suffix: str, limit: int | None) -> list[int]:
        return self._joined(self._encode(prefix, limit), self._encode(suffix, limit), [])

    def fitted(
        self, prefix: str, suffix: str, extra: Sequence[tuple[str, str]], room: int
    ) -> list[int]:
        near = max(room, 0) * MAX_TOKEN_CHARACTERS
        before = self._encode(prefix[max(len(prefix) - near, 0) :], room)
        after = self._encode(suffix[:near], room)
        before, after = _cut(before, after, room - len(self._joined([], [], [])))
        files = self._last_files(extra, room - len(self._joined(before, after, [[]])))
        return self._joined(before, after, files)

    def _last_files(self, extra: Sequence[tuple[str, str]], room: int) -> list[list[int]]:
        """The last files that fit. Those before them are not encoded."""
        files: list[list[int]] = []
        for name, text in reversed(extra):
            if len(text) > room * MAX_TOKEN_CHARACTERS:
                break
            files.append(self._file(name, text, room))
            room -= len(files[-1])
            if room < 0:
                files.pop()
                break
        return files[::-1]

    def _joined(self, prefix: list[int], suffix: list[int], files: list[list[int]]) -> list[int]:
        start = [*self._tokenizer.encode("", add_special_tokens=True)]
        if files:
            start += [*self._opening(), *chain(*files), *self._closing()]
        before = [*self._ids_of(self._tokens.prefix), *prefix]
        after = [*self._ids_of(self._tokens.suffix), *suffix]
        if not self._tokens.middle:
            return [*start, *after, *before]
        return [*start, *before, *after, *self._ids_of(self._tokens.middle)]

    def _opening(self) -> list[int]:
        file, repository = self._ids_of(self._tokens.file), self._ids_of(self._tokens.repository)
        return [*repository, *self._encode("repository\n")] if file and repository else []

    def _file(self, name: str, text: str, limit: int) -> list[int]:
        file = self._ids_of(self._tokens.file)
        titled = f"{name}\n{text}" if file else SNIPPET + text
        return [*file, *self._encode(titled, limit)]

    def _closing(self) -> list[int]:
        file = self._ids_of(self._tokens.file)
        return [*file, *self._encode("filename\n")] if file else []

    def _encode(self, text: str, limit: int | None = None) -> list[int]:
        return self._tokenizer.encode_literally(text, add_special_tokens=False, limit=limit)

    def _ids_of(self, token: str) -> list[int]:
        return _ids_of(self._tokenizer, token)


def _cut(prefix: list[int], suffix: list[int], room: int) -> tuple[list[int], list[int]]:
    """The end of the prefix and the start of the suffix: three to one, if both are long."""
    after = min(len(suffix), max(room // 4, room - len(prefix), 0))
    before = min(len(prefix), max(room - after, 0))
    return prefix[len(prefix) - before :], suffix[:after]


def _format_of(tokenizer: TextTokenizer) -> FimTokens | None:
    for tokens in FORMATS:
        if all(_ids_of(tokenizer, token) for token in _needed(tokens)):
            return tokens
    return None


def _needed(tokens: FimTokens) -> tuple[str, ...]:
    return tuple(filter(None, (tokens.prefix, tokens.suffix, tokens.middle)))


def _ids_of(tokenizer: TextTokenizer, token: str) -> list[int]:
    """The id of a token as a list, which is empty if the vocabulary lacks it.

    Some vocabularies have FIM tokens that are not special.
    """
    if not token:
        return []
    special = tokenizer.special_id(token)
    ids = tokenizer.encode(token, add_special_tokens=False) if special is None else [special]
    return [*ids] if len(ids) == 1 else []
