"""The modes of the search for openings of calls in the layout of blocks."""

from collections.abc import Mapping, Sequence

from deployments.contract.grammar_triggers import TriggerMode

Modes = tuple[TriggerMode, ...]


def block_modes(
    *,
    openings: Mapping[str, int],
    compact: Mapping[str, int],
    thoughts: Mapping[str, str],
    breaks: Sequence[str],
    frame: tuple[str, str] | None,
    opened_thought: str | None,
) -> Modes:
    """`openings` open calls anywhere outside of thoughts, `compact` ones where a block may begin,
    each with the number of its mode. `thoughts` are the end marks of start marks, `breaks` are
    openings that end thoughts. The prompt has begun the thought with the start mark
    `opened_thought`, if there is one.
    """
    ends = list(dict.fromkeys(thoughts.values()))
    names = ["fresh", "text", *ends, *(["framed", "framed text"] if frame else [])]
    if opened_thought is not None:  # the search starts in the first mode
        names.sort(key=lambda name: name != thoughts[opened_thought])
    number = {name: index for index, name in enumerate(names)}
    start, end = frame or ("", "")
    begun = {mark: number[close] for mark, close in thoughts.items()}
    broken = {mark: opening for mark, opening in openings.items() if mark in breaks}
    entered = {start: number["framed"]} if frame else {}
    inside = {**openings, end: number["text"]}
    modes = {
        "fresh": TriggerMode(
            marks=_pairs({**begun, **openings, **entered}),
            otherwise=number["text"],
            compact=_pairs(compact),
        ),
        "text": TriggerMode(marks=_pairs(openings)),
        **{close: TriggerMode(marks=_pairs({**broken, close: number["fresh"]})) for close in ends},
    }
    if frame:
        modes["framed"] = TriggerMode(marks=_pairs(inside), otherwise=number["framed text"])
        modes["framed text"] = TriggerMode(marks=_pairs(inside))
    return tuple(modes[name] for name in names)


def _pairs(marks: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(marks.items())
