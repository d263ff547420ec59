"""Refuses configs whose sizes no model can have, by the names of their fields, before anything is
made of them: what reads a config makes lists as long as it says. Free of torch, for routers."""

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from deployments.engine.errors import UnsupportedModelError

MAX_COUNT = 20_000  # layers or labels, of which configs make lists
MAX_SIZE = 2**31 - 1  # a dimension, or a position
MAX_DEPTH = 8  # configs within configs
# Whole numbers from 1 on, in all configs that have them.
SIZES = frozenset(
    {
        *("vocab_size", "hidden_size", "intermediate_size", "head_dim"),
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
        *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
        "original_max_position_embeddings",
        *("n_embd", "n_layer", "n_layers", "n_head", "n_heads", "d_model", "num_layers"),
    }
)
# Numbers of rotary embeddings: others make frequencies that are none.
SCALES = frozenset(
    {
        *("rope_theta", "factor", "attention_factor", "beta_fast", "beta_slow"),
        *("low_freq_factor", "high_freq_factor"),
    }
)
COUNTS = re.compile(r"layers?$|blocks?$|depths?$|^num_labels$")


def check_sizes(config: Mapping[str, Any]) -> None:
    """Raises UnsupportedModelError for a config.json with a size that no model can have, or a scale
    of positions that is no number.
    """
    for name, value in all_fields(config):
        if isinstance(value, list | dict) or value is None:  # by layer, or as its type has it
            continue
        if name in SIZES and (type(value) is not int or value < 1):
            raise UnsupportedModelError(
                f"{name} of its config is {value!r:.50}, and no whole number from 1 on"
            )
        if name in SCALES and not _is_scale(value):
            raise UnsupportedModelError(
                f"{name} of its config is {value!r:.50}, and no number above 0"
            )
        most = MAX_COUNT if COUNTS.search(name) else MAX_SIZE if name in SIZES else None
        if most is not None and isinstance(value, int) and value > most:
            raise UnsupportedModelError(
                f"{name} of its config is {value!r:.50}, and {most} at the most is served"
            )


def _is_scale(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


def all_fields(config: Mapping[str, Any], depth: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yields names and values, also of configs within."""
    for name, value in config.items():
        yield name, value
        if isinstance(value, Mapping) and depth:
            yield from all_fields(value, depth - 1)
