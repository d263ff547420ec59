"""The triggers of a grammar within an output: a part of a `GenerationRequest`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerMode:
    """The marks that one part of an output is searched for.

    Each mark leads to the mode of that number; a mark with the number ~i is trigger i. Without
    `otherwise` a mark may come anywhere. With it one must come at once, and if none does, that mode
    reads the text. `skips_space`: whitespace before it is passed over. `compact` marks, too, may
    come at once; they have no whitespace, and the text's is left out outside of double quotes.
    """

    marks: tuple[tuple[str, int], ...]
    otherwise: int | None = None
    skips_space: bool = True
    compact: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarTriggers:
    """The triggers that begin a grammar within an output. The output is free up to the first one.

    The search starts in the first of `modes`. The grammar reads the trigger's own one of `leads`
    first, and then the text behind the trigger. Special tokens other than `kept_specials` are no
    text if `skip_special_tokens`.
    """

    modes: tuple[TriggerMode, ...]
    leads: tuple[str, ...]
    kept_specials: frozenset[int] = frozenset()
    skip_special_tokens: bool = True
