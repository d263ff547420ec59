"""Puts media into a prompt: the text of each in the place of its marker, then all of its ids.

A run of placeholders is one token of the text, and is made longer in the ids: tokenizers never join
an added token with another one, so this gives the ids of the whole text.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from deployments.contract.errors import refused
from deployments.contract.media_rules import (
    AudioRules,
    Expansion,
    ImageRules,
    MediaKind,
    MediaRules,
    MediaSizeError,
)
from deployments.media.medium import Medium
from kv.content import PlaceholderRange

NAMES = {MediaKind.IMAGE: "images", MediaKind.AUDIO: "sounds"}


@dataclass(frozen=True, slots=True)
class ExpandedText:
    """A prompt's text with its media in the order of the text; `kinds` are those of its rules."""

    text: str
    media: tuple[Medium, ...] = ()
    _expansions: tuple[Expansion, ...] = field(default=(), repr=False)
    _rules: MediaRules = field(default=MediaRules(), repr=False)

    def insert_placeholders(
        self, ids: Sequence[int], param: str
    ) -> tuple[Sequence[int], tuple[PlaceholderRange, ...]]:
        """The final ids of the text that `ids` encode, and the range of each medium in them. Raises
        Refused, where a text has placeholders of its own.
        """
        if not self.media:
            return ids, ()
        inserted: list[int] = []
        runs = deque(self._runs())
        ranges: list[PlaceholderRange] = []
        placeholders = set(self._placeholders())
        for token_id in ids:
            if token_id not in placeholders:
                inserted.append(token_id)
                continue
            if not runs or runs[0][0] != token_id:
                raise _stray(param)
            _, length, index = runs.popleft()
            first, end = len(inserted), len(inserted) + length
            if index == len(ranges):
                columns = self._expansions[index].columns
                ranges.append(PlaceholderRange(self.media[index].digest, first, end, columns))
            else:
                ranges[-1] = replace(ranges[-1], end=end)
            inserted += [token_id] * length
        if runs:
            raise _stray(param)
        return inserted, tuple(ranges)

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Yields the placeholder of each run, how many ids it has, and the index of its medium."""
        for index, expansion in enumerate(self._expansions):
            token_id = _rules_of(self.media[index].kind, self._rules).placeholder_id
            yield from ((token_id, length, index) for length in expansion.runs)

    def _placeholders(self) -> Iterator[int]:
        for kind in self._rules.kinds:
            yield _rules_of(kind, self._rules).placeholder_id

    @property
    def n_more(self) -> int:
        """Ids that `insert_placeholders` adds to those of the text."""
        return sum(sum(expansion.runs) - len(expansion.runs) for expansion in self._expansions)


def expand(text: str, rules: MediaRules, media: Sequence[Medium], param: str) -> ExpandedText:
    """`media` are in the order of the conversation, which templates keep within a kind. Raises
    Refused.
    """
    kinds = {_rules_of(kind, rules).marker: kind for kind in rules.kinds}
    parts = re.split("(" + "|".join(map(re.escape, kinds)) + ")", text)
    _check_counts(Counter(kinds[marker] for marker in parts[1::2]), media, rules, param)
    waiting = {
        kind: deque(medium for medium in media if medium.kind is kind) for kind in rules.kinds
    }
    in_order = tuple(waiting[kinds[marker]].popleft() for marker in parts[1::2])
    expansions = tuple(_expansion(medium, rules, param) for medium in in_order)
    parts[1::2] = [expansion.text for expansion in expansions]
    return ExpandedText("".join(parts), in_order, expansions, rules)


def _check_counts(
    found: Counter[MediaKind], media: Sequence[Medium], rules: MediaRules, param: str
) -> None:
    given = Counter(medium.kind for medium in media)
    for kind in rules.kinds:
        if found[kind] != given[kind]:
            marker = _rules_of(kind, rules).marker
            raise refused(
                f"`{param}`: the prompt has {found[kind]} placeholders for {NAMES[kind]} and the "
                f"request {given[kind]} of these. The text {marker!r} makes such a placeholder in "
                "the prompts of this model",
                param,
            )


def _expansion(medium: Medium, rules: MediaRules, param: str) -> Expansion:
    try:
        return expansion_of(medium, rules)
    except MediaSizeError as error:
        raise refused(f"`{param}`: one of the {NAMES[medium.kind]} {error}", param) from error


def expansion_of(medium: Medium, rules: MediaRules) -> Expansion:
    """Raises MediaSizeError."""
    if medium.kind is MediaKind.IMAGE:
        assert rules.images is not None
        return rules.images.expand(medium.width, medium.height)
    assert rules.audio is not None
    n_samples, most = medium.n_samples(rules.audio.sampling_rate), rules.audio.max_samples
    if most is not None and n_samples > most:
        rate = rules.audio.sampling_rate
        raise MediaSizeError(
            f"has {n_samples / rate:.1f} seconds; this model takes {most / rate:g} at most"
        )
    return rules.audio.expand(n_samples)


def _rules_of(kind: MediaKind, rules: MediaRules) -> ImageRules | AudioRules:
    found = rules.images if kind is MediaKind.IMAGE else rules.audio
    assert found is not None
    return found


def _stray(param: str) -> Exception:
    return refused(
        f"`{param}` has a text that is one of the tokens in whose places this model has images or "
        "sounds",
        param,
    )
