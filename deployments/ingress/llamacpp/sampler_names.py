"""The names of samplers, written out or as the characters of one string, in llama-server's way."""

from collections.abc import Sequence

from deployments.contract.errors import refused

DEFAULT_SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
SAMPLER_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
}
ALIASES = {
    "top-k": "top_k",
    "top-p": "top_p",
    "nucleus": "top_p",
    "typ": "typ_p",
    "typ-p": "typ_p",
    "typical": "typ_p",
    "typical-p": "typ_p",
    "typical_p": "typ_p",
    "min-p": "min_p",
    "temp": "temperature",
}
# Editors ask for it behind the others: it weighs the ends of a middle against its beginnings. There
# is none here, and what the others have left is drawn from as it is.
INFILL_SAMPLER = ("infill", "i")
MAX_SAMPLERS = 32


def sampler_order(samplers: str | Sequence[str]) -> tuple[str, ...]:
    """The full names in their order. Raises Refused."""
    spelled_out = {**ALIASES, **{name: name for name in DEFAULT_SAMPLERS}}
    names = SAMPLER_LETTERS if isinstance(samplers, str) else spelled_out
    order = tuple(
        _named(sampler, names)
        for sampler in samplers[: MAX_SAMPLERS + 1]
        if sampler not in INFILL_SAMPLER
    )
    if len(order) > MAX_SAMPLERS:
        raise refused(f"`samplers` has more than {MAX_SAMPLERS} samplers", "samplers")
    return order


def _named(given: str, names: dict[str, str]) -> str:
    if given not in names:
        known = ", ".join(names)
        raise refused(f"`samplers` has {given[:40]!r}, which is none of {known}", "samplers")
    return names[given]
