"""Prompts that a model completes in the middle, written with the marks it was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from deployments.text.tokens.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Tokens as a vocabulary spells them. Without `middle` the suffix comes first.

    `file` stands before the name of each file of a repository, which `repository` names. None of
    them is a part of what is filled in, nor are the `others` of the family.
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


LONG = 16  # characters of a token, and more than those of text have: what has more can't fit
SNIPPET = "\n\n--- snippet ---\n\n"  # before a file where no mark names it
KNOWN = (
    Marks(  # Qwen Coder, CodeGemma's with a separator, Granite's newer ones
        prefix="<|fim_prefix|>",
        suffix="<|fim_suffix|>",
        middle="<|fim_middle|>",
        repository="<|repo_name|>",
        file="<|file_sep|>",
        others=("<|fim_pad|>", "<|file_separator|>", "<|reponame|>", "<|filename|>"),
    ),
    Marks(  # StarCoder, SantaCoder, SmolLM, Granite
        prefix="<fim_prefix>",
        suffix="<fim_suffix>",
        middle="<fim_middle>",
        repository="<repo_name>",
        file="<file_sep>",
        others=("<fim_pad>", "<reponame>", "<filename>"),
    ),
    Marks(
        prefix="<fim-prefix>", suffix="<fim-suffix>", middle="<fim-middle>", others=("<fim-pad>",)
    ),
    Marks(  # DeepSeek Coder: its hole stands where the middle is missing
        prefix="<\uff5cfim\u2581begin\uff5c>",
        suffix="<\uff5cfim\u2581hole\uff5c>",
        middle="<\uff5cfim\u2581end\uff5c>",
    ),
    Marks(  # GLM
        prefix="<|code_prefix|>", suffix="<|code_suffix|>", middle="<|code_middle|>"
    ),
    Marks(prefix="<|fim_begin|>", suffix="<|fim_hole|>", middle="<|fim_end|>"),
    Marks(  # Code Llama
        prefix="\u2581<PRE>", suffix="\u2581<SUF>", middle="\u2581<MID>", others=("\u2581<EOT>",)
    ),
    Marks(prefix="<PRE>", suffix="<SUF>", middle="<MID>", others=("<EOT>", "<PAD>")),
    Marks(prefix="[PREFIX]", suffix="[SUFFIX]"),  # Codestral
)


def infill_ids(
    tokenizer: TextTokenizer, prefix: str, suffix: str, limit: int | None = None
) -> list[int] | None:
    """What a model continues with the text between the two; None if it was not trained to.

    What spells a mark in any text is plain text. `limit` is as TextTokenizer has it, for each text.
    """
    marks = _known_to(tokenizer)
    return None if marks is None else _Prompt(tokenizer, marks).ids(prefix, suffix, limit)


def fitted_ids(
    tokenizer: TextTokenizer,
    prefix: str,
    suffix: str,
    extra: Sequence[tuple[str, str]],
    room: int,
) -> list[int] | None:
    """The same behind other files of the repository as (name, text), the least important first.

    Where all of it is more than `room` tokens the first files are left out, and if that is not
    enough, what is farthest from the middle.
    """
    marks = _known_to(tokenizer)
    return None if marks is None else _Prompt(tokenizer, marks).fitted(prefix, suffix, extra, room)


def infill_ends(tokenizer: TextTokenizer) -> tuple[int, ...]:
    """What a model says when the middle is whole: the next file, or more of this one's parts.

    Few name these among their ends.
    """
    marks = _known_to(tokenizer)
    found = (_mark(tokenizer, mark) for mark in (marks.ends if marks else ()))
    return tuple(chain(*found))


class _Prompt:
    def __init__(self, tokenizer: TextTokenizer, marks: Marks) -> None:
        self._tokenizer = tokenizer
        self._marks = marks

    def ids(self, prefix: str, suffix: str, limit: int | None) -> list[int]:
        return self._joined(self._text(prefix, limit), self._text(suffix, limit), [])

    def fitted(
        self, prefix: str, suffix: str, extra: Sequence[tuple[str, str]], room: int
    ) -> list[int]:
        near = max(room, 0) * LONG
        before = self._text(prefix[max(len(prefix) - near, 0) :], room)
        after = self._text(suffix[:near], room)
        before, after = _cut(before, after, room - len(self._joined([], [], [])))
        files = self._last(extra, room - len(self._joined(before, after, [[]])))
        return self._joined(before, after, files)

    def _last(self, extra: Sequence[tuple[str, str]], room: int) -> list[list[int]]:
        """The files that fit, from the last on: those before them are not even read."""
        files: list[list[int]] = []
        for name, text in reversed(extra):
            if len(text) > room * LONG:
                break
            files.append(self._file(name, text, room))
            room -= len(files[-1])
            if room < 0:
                files.pop()
                break
        return files[::-1]

    def _joined(self, prefix: list[int], suffix: list[int], files: list[list[int]]) -> list[int]:
        marks, joined = self._marks, self._tokenizer.encode("", add_special_tokens=True)
        if files:
            joined += [*self._opening(), *chain(*files), *self._closing()]
        if not marks.middle:
            return [*joined, *self._mark(marks.suffix), *suffix, *self._mark(marks.prefix), *prefix]
        joined += [*self._mark(marks.prefix), *prefix, *self._mark(marks.suffix), *suffix]
        return joined + self._mark(marks.middle)

    def _opening(self) -> list[int]:
        names_files, repository = self._mark(self._marks.file), self._mark(self._marks.repository)
        return [*repository, *self._text("repository\n")] if names_files and repository else []

    def _file(self, name: str, text: str, limit: int) -> list[int]:
        mark = self._mark(self._marks.file)
        told = f"{name}\n{text}" if mark else SNIPPET + text
        return [*mark, *self._text(told, limit)]

    def _closing(self) -> list[int]:
        mark = self._mark(self._marks.file)
        return [*mark, *self._text("filename\n")] if mark else []

    def _text(self, text: str, limit: int | None = None) -> list[int]:
        return self._tokenizer.encode_literally(text, add_special_tokens=False, limit=limit)

    def _mark(self, mark: str) -> list[int]:
        return _mark(self._tokenizer, mark)


def _cut(prefix: list[int], suffix: list[int], room: int) -> tuple[list[int], list[int]]:
    """The end of the one and the beginning of the other: three to one, if both are long."""
    after = min(len(suffix), max(room // 4, room - len(prefix), 0))
    before = min(len(prefix), max(room - after, 0))
    return prefix[len(prefix) - before :], suffix[:after]


def _known_to(tokenizer: TextTokenizer) -> Marks | None:
    for marks in KNOWN:
        if all(_mark(tokenizer, mark) for mark in _needed(marks)):
            return marks
    return None


def _needed(marks: Marks) -> tuple[str, ...]:
    return tuple(filter(None, (marks.prefix, marks.suffix, marks.middle)))


def _mark(tokenizer: TextTokenizer, mark: str) -> list[int]:
    """Its id, if the vocabulary has it: some list theirs as tokens that are not special."""
    if not mark:
        return []
    special = tokenizer.special_id(mark)
    ids = tokenizer.encode(mark, add_special_tokens=False) if special is None else [special]
    return ids if len(ids) == 1 else []
