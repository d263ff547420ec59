"""The demo that sees: CLIP's tower, and a language model of which many chats share one picture.

The law: each chat is computed as if it stood alone behind the picture. So a picture is looked at
once, however much is asked of it.

Beside what transformers has of it there is a loss that names what stands in each patch: it teaches
the tower to see long before questions do. What a word stands for, a patch says as the sum of such
words' embeddings: the language model, which knows them, can read patches from the beginning.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from serve_app.demo.training.batches import IGNORED
from serve_app.demo.training.fused_ops import causal_attention, rms_norm, total_loss
from serve_app.demo.training.network import (
    EPS,
    Attend,
    Network,
    NetworkShape,
    angles,
    first_weights,
    light,
    named_weights,
    through,
    turned,
)
from serve_app.demo.training.tokenizer import VOCABULARY
from serve_app.demo.training.vision.drawing import CLASSES, WORDED

CHANNELS = 3
MEAN = STD = 0.5  # of pixels from 0 to 1


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
        matrix, deep = first_weights(seed), 0.02 / (2 * shape.layers) ** 0.5

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


# 2.8 M parameters; 64 tokens a picture
TOWER = TowerShape(side=96, patch=12, hidden=192, layers=6, heads=6, inner=768)
# The draft of the demo, with a layer more and with the token that stands for a patch.
LANGUAGE = NetworkShape(
    hidden=128,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=32,
    inner=320,
    first_layers=4,
    vocabulary=VOCABULARY + 1,
)
DRAFT_LAYERS = (0, 1, 3)  # which of them the draft's are
CERTAIN = 8.0  # the score of a word that a patch has once, where one for none of them has half
UNLABELLED = 0.3  # weight of patches without a label: they are many


@dataclass(frozen=True)
class Packed:
    """Pictures, and chats that each begin with one; all with the same beginning before it."""

    pixels: Tensor  # [pictures, channels, side, side]
    labels: Tensor  # [pictures, patches, heads]
    begin: Tensor  # [tokens before the picture]
    ids: Tensor  # [pictures, chats, tokens behind the picture]
    targets: Tensor  # as ids; IGNORED where the loss does not look

    @property
    def counted(self) -> int:
        return int((self.targets != IGNORED).sum())


class SightNetwork(nn.Module):
    def __init__(self, tower: TowerShape, language: NetworkShape, seed: int) -> None:
        super().__init__()
        self.language = Network(language, seed)
        self.tower = Tower(tower, language.hidden, seed)
        # for labels that no word stands for; no file keeps it
        self.head = nn.Parameter(torch.zeros(sum(CLASSES), language.hidden))

    @torch.no_grad()
    def take(self, draft: LlamaForCausalLM) -> None:
        """The draft's weights; the layers that it has not add nothing at first."""
        network, given = self.language, draft.state_dict()
        for name, weight in named_weights(network, DRAFT_LAYERS).items():
            weight[: len(given[name])].copy_(given[name])
        for layer in set(range(network.shape.layers)) - set(DRAFT_LAYERS):
            network.out[layer].zero_()
            network.down[layer].zero_()


def packed_loss(network: SightNetwork, pictures: Tensor, batch: Packed) -> Tensor:
    """The sum of cross entropies over the targets that count; `pictures`: as `looked_at`"""
    final = _hidden(network, pictures, batch)
    final = final * light(network.language.norms)[-1]
    logits = functional.linear(final, light(network.language.embed))
    return total_loss(logits, batch.targets[batch.targets != IGNORED])


def words_of(tokenizer: PreTrainedTokenizerFast) -> list[Tensor]:
    """Ids of what stands for each label that is a word: the first token of it."""
    return [torch.tensor([tokenizer(name)["input_ids"][0] for name in names]) for names in WORDED]


def naming_loss(
    network: SightNetwork, pictures: Tensor, labels: Tensor, words: list[Tensor]
) -> Tensor:
    """Returns the sum over all labels of mean cross entropies over patches.

    pictures: as `looked_at`; labels: [pictures, patches, heads]; words: as `words_of`
    """
    embed = light(network.language.embed.detach())
    flat, kinds = pictures.flatten(0, 1), labels.flatten(0, 1).unbind(1)
    none = torch.full((len(flat), 1), CERTAIN / 2, dtype=flat.dtype)
    scores = [torch.cat((none, CERTAIN * flat @ embed[ids].T), 1) for ids in words]
    normal = functional.layer_norm(flat, flat.shape[1:])
    others = functional.linear(normal, light(network.head))
    scores += torch.split(others, list(CLASSES), 1)
    return torch.stack([_mean_loss(*each) for each in zip(scores, kinds, strict=True)]).sum()


def _mean_loss(scores: Tensor, kinds: Tensor) -> Tensor:
    loss = functional.cross_entropy(scores.float(), kinds, reduction="none")
    has_label = kinds > 0
    labelled, none = ((loss * of).sum() / of.sum().clamp(min=1) for of in (has_label, ~has_label))
    return labelled + UNLABELLED * none


def _hidden(network: SightNetwork, pictures: Tensor, batch: Packed) -> Tensor:
    """[counted, hidden], normalized"""
    language = network.language
    count, chats, tokens = batch.ids.shape
    layout = _Layout(language.shape, count, chats, tokens, len(batch.begin) + pictures.shape[1])
    embed = light(language.embed)
    begin = functional.embedding(batch.begin, embed).expand(layout.pictures, -1, -1)
    shared = torch.cat((begin, pictures), 1).flatten(0, 1)
    own = functional.embedding(batch.ids.flatten(), embed)
    x, attend = torch.cat((shared, own)), layout.attention()
    counted = torch.cat(
        (torch.zeros(len(shared), dtype=torch.bool), (batch.targets != IGNORED).flatten())
    )
    last = language.shape.layers - 1
    for layer in range(last):
        x = through(language, layer, x, attend)
    return rms_norm(through(language, last, x, attend, counted), EPS)


@dataclass(frozen=True)
class _Layout:
    """Tokens in a row: of each picture the shared ones, then of each picture the chats'."""

    shape: NetworkShape
    pictures: int
    chats: int
    tokens: int  # of a chat
    shared: int  # tokens of a picture before its chats

    def attention(self) -> Attend:
        """The attention of all tokens, of which those of a chat follow the shared ones."""
        shared = torch.arange(self.shared).repeat(self.pictures)
        own = torch.arange(self.shared, self.shared + self.tokens)
        positions = torch.cat((shared, own.repeat(self.pictures * self.chats)))
        cos, sin = angles(positions, self.shape.head_dim)
        return lambda projected: self._attended(projected, cos, sin)

    def _attended(self, projected: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query, key, value = turned(self.shape, projected, cos, sin)
        border = self.pictures * self.shared
        before = [
            part[:border].view(self.pictures, self.shared, -1, self.shape.head_dim)
            for part in (query, key, value)
        ]
        of_shared = causal_attention(*before).flatten(0, 1)
        of_own = self._own(query[border:], before[1:], key[border:], value[border:])
        return torch.cat((of_shared, of_own))

    def _own(self, query: Tensor, before: list[Tensor], key: Tensor, value: Tensor) -> Tensor:
        """Chats look at what is shared and at themselves."""
        kv_heads, dim = self.shape.kv_heads, self.shape.head_dim
        group, groups = self.shape.group, self.pictures * kv_heads
        # [pictures, kv heads, chats, group, tokens, dim]
        q = query.view(self.pictures, self.chats, self.tokens, kv_heads, group, dim)
        q = q.permute(0, 3, 1, 4, 2, 5).reshape(groups, -1, dim) * dim**-0.5
        q_alone = q.view(groups * self.chats, -1, dim)
        k_before, v_before = (
            part.transpose(1, 2).reshape(groups, self.shared, dim) for part in before
        )
        k, v = (
            part.view(self.pictures, self.chats, self.tokens, kv_heads, dim)
            .permute(0, 3, 1, 2, 4)
            .reshape(groups * self.chats, self.tokens, dim)
            for part in (key, value)
        )
        future = torch.full((self.tokens, self.tokens), -torch.inf, dtype=q.dtype).triu(1)
        alone = torch.baddbmm(future.repeat(group, 1), q_alone, k.mT).view(groups, -1, self.tokens)
        scores = torch.cat((torch.bmm(q, k_before.mT), alone), -1).softmax(-1)
        to_before, to_alone = torch.split(scores, [self.shared, self.tokens], -1)
        mixed = torch.bmm(to_before, v_before)
        mixed = mixed + torch.bmm(to_alone.reshape(len(q_alone), -1, self.tokens), v).view_as(mixed)
        mixed = mixed.view(self.pictures, kv_heads, self.chats, group, self.tokens, dim)
        return mixed.permute(0, 2, 4, 1, 3, 5).reshape(-1, kv_heads * group * dim)
