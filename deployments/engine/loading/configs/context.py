"""Says how long a text a model can read, by its config. Scaled rotary embeddings (YaRN, linear and
dynamic) extend it; where the config's own number includes that, it is not extended twice."""

from collections.abc import Iterator, Mapping
from typing import Any

from transformers import PretrainedConfig

from deployments.engine.errors import UnsupportedModelError

# The names that configs have for the longest sequence, in tokens.
CONTEXT_LENGTHS = (
    *("max_position_embeddings", "max_target_positions", "n_positions"),
    *("max_seq_len", "seq_length"),
)
ORIGINAL = "original_max_position_embeddings"
# LongRoPE's and Llama 3's are made for the config's own number.
EXTENDED = ("yarn", "linear", "dynamic")


def longest_context(config: PretrainedConfig) -> int | None:
    """Returns its tokens, or None where the config does not say. Raises UnsupportedModelError for a
    scale that is no number."""
    found = (getattr(config, name, None) for name in CONTEXT_LENGTHS)
    longest: int | None = next((length for length in found if length is not None), None)
    if longest is None:
        return None
    return max(longest, *(_extended(scaling, longest) for scaling in _scalings(config)), 1)


def _scalings(config: PretrainedConfig) -> Iterator[Mapping[str, Any]]:
    """Yields the scalings that extend the whole model. One of a single kind of layers says so only
    where it names the length that it extends."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(rope, Mapping):
        return
    of_kinds = [value for value in rope.values() if isinstance(value, Mapping)]
    for scaling in of_kinds or [rope]:
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind in EXTENDED and (not of_kinds or (kind == "yarn" and scaling.get(ORIGINAL))):
            yield scaling


def _extended(scaling: Mapping[str, Any], longest: int) -> int:
    factor = scaling.get("factor")
    if factor is None:  # then it is what `longest` is of the original
        return longest
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor < 1e6:
        raise UnsupportedModelError(
            f"factor of its rope_scaling is {factor!r}, no number from 1 on"
        )
    return int(factor * (scaling.get(ORIGINAL) or longest))
