"""Prompts that a model completes in the middle, written with the marks it was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deployments.text.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Tokens as a vocabulary spells them. Without `middle` the suffix comes first.

    `file` stands before the name of each file of a repository, which `repository` names.
    """

    prefix: str
    suffix: str
    middle: str = ""
    repository: str = ""
    file: str = ""

    def around(self, prefix: str, suffix: str) -> str:
        if not self.middle:
            return f"{self.suffix}{suffix}{self.prefix}{prefix}"
        return f"{self.prefix}{prefix}{self.suffix}{suffix}{self.middle}"

    def before(self, extra: Sequence[tuple[str, str]]) -> str:
        """Other files of the repository, as (name, text)."""
        if not self.file:
            return "".join(text for _, text in extra)
        files = "".join(f"{self.file}{name}\n{text}" for name, text in extra)
        opening = f"{self.repository}repository\n" if self.repository else ""
        return f"{opening}{files}{self.file}filename\n"


KNOWN = (
    Marks(  # Qwen Coder, CodeGemma's with a separator, Granite's newer ones
        prefix="<|fim_prefix|>",
        suffix="<|fim_suffix|>",
        middle="<|fim_middle|>",
        repository="<|repo_name|>",
        file="<|file_sep|>",
    ),
    Marks(  # StarCoder, SantaCoder, SmolLM, Granite
        prefix="<fim_prefix>",
        suffix="<fim_suffix>",
        middle="<fim_middle>",
        repository="<repo_name>",
        file="<file_sep>",
    ),
    Marks(prefix="<fim-prefix>", suffix="<fim-suffix>", middle="<fim-middle>"),
    Marks(  # DeepSeek Coder: its hole stands where the middle is missing
        prefix="<\uff5cfim\u2581begin\uff5c>",
        suffix="<\uff5cfim\u2581hole\uff5c>",
        middle="<\uff5cfim\u2581end\uff5c>",
    ),
    Marks(  # GLM
        prefix="<|code_prefix|>", suffix="<|code_suffix|>", middle="<|code_middle|>"
    ),
    Marks(prefix="<|fim_begin|>", suffix="<|fim_hole|>", middle="<|fim_end|>"),
    Marks(prefix="\u2581<PRE>", suffix="\u2581<SUF>", middle="\u2581<MID>"),  # Code Llama
    Marks(prefix="<PRE>", suffix="<SUF>", middle="<MID>"),
    Marks(prefix="[PREFIX]", suffix="[SUFFIX]"),  # Codestral
)


def infill_ids(
    tokenizer: TextTokenizer, prefix: str, suffix: str, extra: Sequence[tuple[str, str]] = ()
) -> list[int] | None:
    """What a model continues with the text between the two; None if it was not trained to."""
    for marks in KNOWN:
        if all(_is_token(tokenizer, mark) for mark in _needed(marks)):
            before = _known(tokenizer, marks).before(extra) if extra else ""
            text = before + marks.around(prefix, suffix)
            return tokenizer.encode(text, add_special_tokens=True)
    return None


def _needed(marks: Marks) -> tuple[str, ...]:
    return tuple(filter(None, (marks.prefix, marks.suffix, marks.middle)))


def _known(tokenizer: TextTokenizer, marks: Marks) -> Marks:
    """Without what the vocabulary does not have of the marks between files."""
    file = marks.file if _is_token(tokenizer, marks.file) else ""
    repository = marks.repository if _is_token(tokenizer, marks.repository) else ""
    return replace(marks, file=file, repository=repository)


def _is_token(tokenizer: TextTokenizer, mark: str) -> bool:
    """Whether the vocabulary has the mark: some list theirs as tokens that are not special."""
    if not mark:
        return False
    return tokenizer.special_id(mark) is not None or (
        len(tokenizer.encode(mark, add_special_tokens=False)) == 1
    )
