"""What the layers of a model store of a token. Layers may differ."""

from typing import NamedTuple


class LayerShape(NamedTuple):
    """Keys and values of one layer, each [kv_heads, head_dim] for a token. `NOTHING` is of a layer
    that does not attend."""

    kv_heads: int
    head_dim: int

    @property
    def token_numbers(self) -> int:
        """Numbers stored of one token, keys and values."""
        return 2 * self.kv_heads * self.head_dim


NOTHING = LayerShape(0, 0)
Layout = tuple[LayerShape, ...]  # of each layer


def alike(n_layers: int, kv_heads: int, head_dim: int) -> Layout:
    """Of layers that do not differ."""
    return (LayerShape(kv_heads, head_dim),) * n_layers
