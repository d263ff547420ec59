"""Heads that copy and heads that look up, in initial weights: what a short training hardly finds.

The circuit that says again what it was told is known (induction heads, Olsson et al. 2022): a head
that looks at the token before, and one above it that looks for what followed the same token earlier
and says that. `prime` has them in the first weights, for any vocabulary.

To find the tool that a question means takes three steps of attention, none of which helps without
the others. First, the words of a definition look for the name that they belong to. Second, the
words of a question look for the same words in definitions, and take over their name. Third, the
token before the name of a call looks for words that found a name, and predicts that name. `install`
has them in layers that are added later: linear probes (ridge regressions on some text) read the
states of the network, and the heads write to the directions that the states use least.

Training is free to change all of these weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

from serve_app.demo.training.fused_ops import rms_norm
from serve_app.demo.training.network import EPS, THETA, Network, states

FAST, SLOW = 0.1, 0.003  # radians a token: rotary pairs that tell positions, and that don't
SHARPNESS = 6.0  # of attention by position: how far, in logits, the next position is behind
GAIN = 2.1  # of queries and keys by content: about ten in logits for the same token
PREVIOUS_SCALE, COPY_SCALE = 0.05, 0.1  # what the heads add is about as large as an embedding
# Those of the heads that look up:
CODE = 48  # dimensions of a code that tells tokens apart
NEAR, NEARBY = (0.005, 0.01), (0.015, 0.035)  # those for the latest of 200 tokens, of 50
# Weights in the attention logits.
NAMED, LATEST, NO_MORE = 60.0, 80.0, 80.0
SAME, NOT_ITSELF = 48.0, 16.0
FOUND, AFTER, RECENT, NO_MARKS, RARE = 16.0, 20.0, 2.0, 16.0, 6.0
LOUDNESS, SAID = 0.15, 0.3  # sizes of what the heads add, relative to the states
RIDGE = 1e-3


@torch.no_grad()
def prime(network: Network, seed: int) -> None:
    """Puts the circuit into heads of the first two layers in use; needs random first weights."""
    made = Generator().manual_seed(seed)
    shape = network.shape
    # A constant in one channel, for heads that look at positions alone. It is as long as an
    # embedding, so that both are half of what a norm lets through.
    network.embed[:, 0] = network.embed.std() * shape.hidden**0.5
    told = _basis(shape.head_dim, shape.hidden, made)
    kept = _basis(2 * shape.head_dim, shape.hidden, made)
    _look_back(network, told, kept.chunk(2))
    for kv_head in range(min(2, shape.kv_heads)):
        _look_for(network, kv_head, told, kept[: shape.head_dim], made)


def _basis(rows: int, hidden: int, made: Generator) -> Tensor:
    """[rows, hidden]: orthonormal, and blind to the constant."""
    columns, _ = torch.linalg.qr(torch.randn(hidden - 1, rows, generator=made))
    return torch.nn.functional.pad(columns.T, (1, 0))


def _speeds(dim: int) -> Tensor:
    """Radians a token, of each pair of a head's dimensions."""
    return THETA ** (-torch.arange(0, dim, 2) / dim)


def _look_back(network: Network, told: Tensor, kept: tuple[Tensor, ...]) -> None:
    """Has the first layer tell what the token before is, and the one before that."""
    shape, dim = network.shape, network.shape.head_dim
    speeds = _speeds(dim)
    pairs = torch.nonzero(speeds > FAST).flatten()
    fall = (1 - speeds[pairs].cos()).sum() / dim**0.5
    strength = (SHARPNESS / fall).sqrt() / (shape.hidden / 2) ** 0.5
    query, key, value = network.heads(network.used[0])
    key[0].zero_()[pairs, 0] = strength
    value[0] = told
    for head, back in enumerate((1, 2)):
        query[head].zero_()
        query[head, pairs, 0] = strength * (back * speeds[pairs]).cos()
        query[head, pairs + dim // 2, 0] = -strength * (back * speeds[pairs]).sin()
        network.out[network.used[0]][:, head * dim : (head + 1) * dim] = (
            PREVIOUS_SCALE * kept[head].T
        )


def _look_for(
    network: Network, kv_head: int, told: Tensor, before: Tensor, made: Generator
) -> None:
    """Has the second layer copy what stands where the token before is this one."""
    dim, head = network.shape.head_dim, kv_head * network.shape.group
    slow = torch.nonzero(_speeds(dim) < SLOW).flatten()
    places = torch.cat((slow, slow + dim // 2))
    seen = torch.randperm(dim, generator=made)[: len(places)]
    query, key, value = network.heads(network.used[1])
    query[head].zero_()[places] = GAIN * told[seen]
    key[kv_head].zero_()[places] = GAIN * before[seen]
    copied = _basis(dim, network.shape.hidden, made)
    value[kv_head] = copied
    network.out[network.used[1]][:, head * dim : (head + 1) * dim] = COPY_SCALE * copied.T


@dataclass(frozen=True)
class Seen:
    """The states of one depth for each token of some text, and their size.

    `states` is [tokens, hidden], each with root mean square 1. `ids` are the tokens, and `before`
    the tokens before them, -1 for none.
    """

    states: Tensor
    size: float
    ids: Tensor
    before: Tensor

    def probe(self, target: Tensor, weight: Tensor) -> Tensor:
        """A linear map from a state to `target`, [columns of target, hidden]."""
        weighted = self.states * weight[:, None]
        products = self.states.T @ weighted
        products.diagonal().add_(RIDGE * products.diagonal().mean())
        found: Tensor = torch.linalg.solve(products, weighted.T @ target)
        return found.T

    def average(self, target: Tensor) -> Tensor:
        """The map to one number for each token, with equal weights."""
        return self.probe(target[:, None], torch.ones(len(self.states)))[0]

    def constant(self) -> Tensor:
        return self.average(torch.ones(len(self.states)))

    def indicator(self, here: Tensor) -> Tensor:
        """The map to 1 where `here` is true, and to 0 elsewhere."""
        rare = 1 + 0.5 / here.float().mean().clamp(min=0.01) * here
        return self.probe(here.float()[:, None], rare)[0]


class Head:
    """The first head of an added layer. At first it looks nowhere and adds nothing.

    In each product only one side is set to zero, because otherwise it could never be learned.
    """

    def __init__(self, network: Network, layer: int) -> None:
        query, key, value = network.heads(layer)
        self.query, self.key, self.value = query[0].zero_(), key[0], value[0]
        self.out = network.out[layer][:, : network.shape.head_dim]
        network.norms[2 * layer] = 1.0  # the probes read states as they are
        self.half = network.shape.head_dim // 2
        self.scale = network.shape.head_dim**0.5
        self.speeds = THETA ** (-torch.arange(self.half) / self.half)
        self.still = torch.nonzero(self.speeds < SLOW).flatten().tolist()

    def look(self, pair: int, query: Tensor, key: Tensor, turned: int = 0) -> None:
        """Adds the product of the two maps to the logits. `turned` is `half` for a quarter turn."""
        even = (self.scale * query.norm() / key.norm()).sqrt()
        self.query[pair + turned] = self.scale * query / even
        self.key[pair], self.key[pair + self.half] = key * even, 0.0

    def look_back(self, speeds: tuple[float, float], query: Tensor, key: Tensor) -> None:
        """Prefers near tokens, up to a quarter turn of the rotary pairs."""
        within = (self.speeds > speeds[0]) & (self.speeds < speeds[1])
        for pair in torch.nonzero(within).flatten().tolist():
            self.look(pair, query, key, self.half)

    def look_alike(self, strength: float, reads: Tensor) -> None:
        """Looks at tokens with the same `reads`, [dimensions, hidden], two for each pair."""
        size = (strength * self.scale) ** 0.5
        for at, read in enumerate(reads):
            dim = self.still[at // 2] + at % 2 * self.half
            self.query[dim] = self.key[dim] = size * read

    def tell(self, reads: Tensor, adds: Tensor) -> None:
        """Reads `reads` where the head looks, and adds `adds`. Both are [dimensions, hidden]."""
        # Equal sizes, because the optimizer changes all rows alike and would lose a small one.
        even = (adds.norm(dim=-1) / reads.norm(dim=-1)).sqrt()[:, None]
        self.value[: len(reads)] = reads * even
        self.out[:, : len(adds)] = (adds / even).T


@dataclass(frozen=True)
class Channels:
    """Directions of the states in which the heads pass on what they found.

    `owner` [CODE, hidden] is the name whose definition a word is in. `match` [CODE, hidden] is the
    name whose definition has the same word. `found` [hidden] is whether any definition has it.
    """

    owner: Tensor
    match: Tensor
    found: Tensor


@torch.no_grad()
def install(
    network: Network, texts: Sequence[Sequence[int]], begun: Sequence[int], end: int
) -> None:
    """Adds all layers, as `grow` does, with these heads in the first three of the new ones.

    `texts` are token ids of chats with tools. `begun` are the tokens from the end of a question to
    the name of a call; the last of them also comes before the name of a definition. `end` is the
    token after the last definition.
    """
    first, second, third = sorted(set(range(network.shape.layers)) - set(network.used))[:3]
    depth = [sum(layer < new for layer in network.used) for new in (first, second, third)]
    assert depth[0] == depth[1], "the first two heads read the same states"
    early, late = (_seen(network, texts, at) for at in (depth[0], depth[2]))
    network.grow()
    codes, unread = _codes(network, early.ids)
    reads = early.probe(codes[early.ids], 1 / torch.bincount(early.ids)[early.ids] ** 0.7)
    quiet = _quiet(early, late)
    channels = Channels(quiet[:CODE], quiet[CODE : 2 * CODE], quiet[-1])
    constant = early.constant()
    _find_owner(Head(network, first), early, channels, reads, constant, begun[-1], end)
    _find_same_word(Head(network, second), early, channels, reads, constant, codes[end])
    head = Head(network, third)
    loudness = late.size / (LOUDNESS * early.size * network.shape.hidden**0.5)
    _find_match(head, late, channels, loudness, codes[end], begun)
    shown = unread / network.norms[-1].clamp(min=0.1).cpu()
    head.tell(loudness * channels.match, SAID * late.size * shown)


def _find_owner(
    head: Head, seen: Seen, channels: Channels, reads: Tensor, constant: Tensor, name: int, end: int
) -> None:
    """Words of a definition look back for its name. `name` is the token before a name."""
    head.look(head.still[-1], NAMED * constant, seen.indicator(seen.before == name))
    head.look(head.still[-2], NO_MORE * constant, seen.indicator(seen.ids == end))
    head.look_back(NEAR, LATEST * constant, constant)
    head.tell(reads, LOUDNESS * seen.size * channels.owner)


def _find_same_word(
    head: Head, seen: Seen, channels: Channels, reads: Tensor, constant: Tensor, end_code: Tensor
) -> None:
    """Words of a question look for the same words in definitions, and take over their owner."""
    owner = channels.owner / (LOUDNESS * seen.states.shape[-1] ** 0.5)
    after = end_code @ owner  # words after all definitions have no owner
    dimensions = 2 * len(head.still) - 4  # the slowest two pairs are for the rest
    head.look_alike(SAME * CODE / dimensions, reads[:dimensions])
    head.look(head.still[-1], NOT_ITSELF * constant, -after)
    owners = torch.cat((owner - torch.outer(end_code, after), (constant - after)[None]))
    written = torch.cat((channels.match, channels.found[None]))
    head.tell(owners, LOUDNESS * seen.size * written)


def _find_match(
    head: Head,
    seen: Seen,
    channels: Channels,
    loudness: float,
    end_code: Tensor,
    begun: Sequence[int],
) -> None:
    """The token before the name of a call looks for words of the question that found a match."""
    is_name = seen.indicator(seen.ids == begun[-1])
    often = torch.bincount(seen.ids)[seen.ids].float().log()
    rarity = (often.mean() - often) / often.std()  # a match of rare words says more
    is_begun = seen.indicator(torch.isin(seen.ids, torch.tensor(begun)))
    head.look(head.still[-1], FOUND * is_name, loudness * channels.found)
    head.look(head.still[-2], AFTER * is_name, end_code @ channels.owner * loudness)
    head.look(head.still[-3], NO_MARKS * is_name, -is_begun)
    head.look(head.still[-4], RARE * is_name, seen.average(rarity))
    head.look_back(NEARBY, RECENT * is_name, seen.constant())


def _seen(network: Network, texts: Sequence[Sequence[int]], depth: int) -> Seen:
    device = network.embed.device
    left = [states(network, torch.tensor([ids], device=device))[depth][0] for ids in texts]
    every = [torch.tensor([-1, *ids]) for ids in texts]
    before, ids = (torch.cat([row[part] for row in every]) for part in (slice(-1), slice(1, None)))
    together = torch.cat(left).float().cpu()
    return Seen(rms_norm(together, EPS), together.norm(dim=-1).mean().item(), ids, before)


def _codes(network: Network, ids: Tensor) -> tuple[Tensor, Tensor]:
    """[vocabulary, CODE], of length one: a token's embedding in the directions in which those of
    the text differ most, all made alike; and the directions, [CODE, hidden].
    """
    embed = network.embed.cpu()
    used = embed[torch.bincount(ids).nonzero().flatten()]
    centre = used.mean(0)
    values, directions = torch.linalg.eigh(torch.cov(used.T, correction=0))
    values, directions = values[-CODE:].flip(0), directions[:, -CODE:].flip(1).T
    codes = (embed - centre) @ (directions / values.sqrt()[:, None]).T
    return functional.normalize(codes, dim=-1), directions


def _quiet(early: Seen, late: Seen) -> Tensor:
    """[2 * CODE + 1, hidden]: orthonormal, where the states have least."""
    energy = sum(seen.states.T @ seen.states for seen in (early, late))
    assert isinstance(energy, Tensor)
    directions: Tensor = torch.linalg.eigh(energy)[1]
    return directions[:, : 2 * CODE + 1].T
