"""One text or a pair within a model's special tokens, cut to fit so that these stay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenizers import Encoding, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Texts lose tokens at their end, or at their beginning with `keeps_end`.

    limit: of all tokens; None for no limit. Of a pair the longer text is cut first.
    per_text: of each text alone, without special tokens; None for no limit.
    """

    limit: int | None
    keeps_end: bool = False
    per_text: tuple[int | None, ...] = (None, None)

    def most(self, index: int) -> int | None:
        """Tokens that are left of this text at most."""
        limits = (self.limit, self.per_text[index])
        return min((limit for limit in limits if limit is not None), default=None)


class Framed(NamedTuple):
    """`second_at` is the index of the first token of the second type; 0 where there is none."""

    ids: Sequence[int]
    second_at: int = 0


def frame(
    tokenizer: Tokenizer, texts: Sequence[Encoding], cut: Cut | None, special_tokens: bool = True
) -> Framed:
    """`texts`: one or two, encoded without special tokens."""
    if cut is not None:
        own = tokenizer.num_special_tokens_to_add(len(texts) == 2) if special_tokens else 0
        _cut(texts, cut, None if cut.limit is None else max(cut.limit - own, 0))
    first, second = texts if len(texts) == 2 else (texts[0], None)
    whole = tokenizer.post_process(first, second, special_tokens)
    types = whole.type_ids
    return Framed(whole.ids, types.index(1) if 1 in types else 0)


def _cut(texts: Sequence[Encoding], cut: Cut, room: int | None) -> None:
    side = "left" if cut.keeps_end else "right"
    lengths = [
        len(text) if most is None else min(len(text), most)
        for text, most in zip(texts, cut.per_text, strict=False)
    ]
    fitting = lengths if room is None else fitted(lengths, room)
    for text, length in zip(texts, fitting, strict=True):
        text.truncate(length, direction=side)


def fitted(lengths: Sequence[int], room: int) -> list[int]:
    """Cuts lengths to `room` in all, as the tokenizers' own strategy "longest first" does."""
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    shorter, longer = sorted(lengths)
    longer = max(shorter, room - shorter)
    if shorter + longer > room:
        shorter = room // 2
        longer = room - shorter
    return [shorter, longer] if lengths[0] <= lengths[1] else [longer, shorter]
