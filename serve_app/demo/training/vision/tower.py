"""The part that sees: CLIP's vision tower, small and written for training, and its projector."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from serve_app.demo.training.network import light

EPS = 1e-5
CHANNELS = 3


@dataclass(frozen=True)
class TowerShape:
    side: int  # of the picture, in pixels
    patch: int
    hidden: int
    layers: int
    heads: int
    inner: int

    @property
    def grid(self) -> int:
        return self.side // self.patch

    @property
    def patches(self) -> int:
        return self.grid**2


class Tower(nn.Module):
    """Float32 weights with fused projections. `language` is the width that the projector meets."""

    def __init__(self, shape: TowerShape, language: int, seed: int) -> None:
        super().__init__()
        self.shape = shape
        made = torch.Generator().manual_seed(seed)
        deep = 0.02 / (2 * shape.layers) ** 0.5

        def matrix(rows: int, columns: int, scale: float = 0.02) -> nn.Parameter:
            return nn.Parameter(scale * torch.randn(rows, columns, generator=made))

        def zeros(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(size))

        hidden, every = shape.hidden, range(shape.layers)
        self.patch = matrix(hidden, CHANNELS * shape.patch**2)
        self.first = matrix(1, hidden)  # CLIP's class token: a place to gather what is seen
        self.positions = matrix(shape.patches + 1, hidden)
        self.qkv = nn.ParameterList([matrix(3 * hidden, hidden) for _ in every])
        self.out = nn.ParameterList([matrix(hidden, hidden, deep) for _ in every])
        self.up = nn.ParameterList([matrix(shape.inner, hidden) for _ in every])
        self.down = nn.ParameterList([matrix(hidden, shape.inner, deep) for _ in every])
        self.biases = nn.ParameterList(
            [zeros(shape.layers, width) for width in (3 * hidden, hidden, shape.inner, hidden)]
        )
        # before all layers, and two in each
        self.norms = nn.Parameter(torch.ones(2 * shape.layers + 1, hidden))
        self.norm_biases = zeros(2 * shape.layers + 1, hidden)
        self.projector = nn.ParameterList(
            [matrix(language, hidden, hidden**-0.5), matrix(language, language)]
        )
        self.projector_biases = zeros(2, language)

    def matrices(self) -> list[list[nn.Parameter]]:
        """Returns the matrices that Muon trains, by shape."""
        return [list(alike) for alike in (self.qkv, self.out, self.up, self.down)]


def seen(tower: Tower, pixels: Tensor) -> Tensor:
    """[pictures, patches, hidden] of normalized pixels [pictures, channels, side, side]"""
    x = functional.linear(_patches(tower.shape, pixels), light(tower.patch))
    first = light(tower.first).expand(len(x), 1, -1)
    x = _normal(tower, torch.cat((first, x), 1) + light(tower.positions), 0)
    for layer in range(tower.shape.layers):
        x = _through(tower, layer, x)
    return x[:, 1:]


def looked_at(tower: Tower, pixels: Tensor) -> Tensor:
    """Returns patches as the language model takes them: [pictures, patches, language hidden]"""
    patches = seen(tower, light(pixels))
    first, second = map(light, tower.projector)
    bias, second_bias = light(tower.projector_biases)
    return functional.linear(
        functional.gelu(functional.linear(patches, first, bias)), second, second_bias
    )


def _patches(shape: TowerShape, pixels: Tensor) -> Tensor:
    """[pictures, patches, channels * patch * patch], as a convolution would read them"""
    grid, patch = shape.grid, shape.patch
    cut = pixels.view(-1, CHANNELS, grid, patch, grid, patch).permute(0, 2, 4, 1, 3, 5)
    return cut.reshape(len(pixels), shape.patches, -1)


def _normal(tower: Tower, x: Tensor, at: int) -> Tensor:
    weight, bias = light(tower.norms[at]), light(tower.norm_biases[at])
    return functional.layer_norm(x, (tower.shape.hidden,), weight, bias, EPS)


def _through(tower: Tower, layer: int, x: Tensor) -> Tensor:
    qkv_bias, out_bias, up_bias, down_bias = (light(bias[layer]) for bias in tower.biases)
    parts = functional.linear(_normal(tower, x, 2 * layer + 1), light(tower.qkv[layer]), qkv_bias)
    x = x + functional.linear(_attended(tower, parts), light(tower.out[layer]), out_bias)
    wide = functional.linear(_normal(tower, x, 2 * layer + 2), light(tower.up[layer]), up_bias)
    wide = functional.gelu(wide, approximate="tanh")
    return x + functional.linear(wide, light(tower.down[layer]), down_bias)


def _attended(tower: Tower, parts: Tensor) -> Tensor:
    """Plain products: at so few patches they train faster than SDPA."""
    pictures, tokens, _ = parts.shape
    heads = tower.shape.heads
    split = parts.view(pictures, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
    query, key, value = split.flatten(1, 2)  # [pictures * heads, tokens, dim]
    scores = torch.bmm(query * key.shape[-1] ** -0.5, key.mT)
    mixed = torch.bmm(scores.softmax(-1), value).view(pictures, heads, tokens, -1)
    return mixed.transpose(1, 2).reshape(pictures, tokens, -1)
