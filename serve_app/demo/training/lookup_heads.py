"""Heads that find the tool a question means, for layers that a growing network wakes.

It takes three steps of attention, and a short training hardly ever finds them: each alone helps
nothing. The words of a definition look for the name that they belong to; the words of a question
look for the same words in the definitions and take over whose they are; the mark before a call's
name looks for words that found something, and says that. Unlike the first weights (see `priming`)
these meet a network that knows something: what its states tell is read off by linear probes (ridge
regressions on some text), and what the heads say to one another goes where the states have least.
Training is free to change all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from serve_app.demo.training.fused_ops import rms_norm
from serve_app.demo.training.network import EPS, THETA, Network, states

CODE = 48  # dimensions of what tells tokens apart
SLOW = 0.003  # radians a token: rotary pairs that don't tell positions, over a whole prompt
NEAR, NEARBY = (0.005, 0.01), (0.015, 0.035)  # those for the latest of 200 tokens, of 50
# how much each counts where a head looks, in logits
NAMED, LATEST, NO_MORE = 60.0, 80.0, 80.0
SAME, NOT_ITSELF = 48.0, 16.0
FOUND, AFTER, RECENT, NO_MARKS, RARE = 16.0, 20.0, 2.0, 16.0, 6.0
LOUDNESS, SAID = 0.15, 0.3  # of what the heads add, in sizes of the states
RIDGE = 1e-3


@dataclass(frozen=True)
class Seen:
    """The states of one depth for each token of some text, and how large they were.

    `states` is [tokens, hidden], each of root mean square one; `ids` and `before` are the tokens
    and the ones before them, -1 where there is none.
    """

    states: Tensor
    size: float
    ids: Tensor
    before: Tensor

    def probe(self, wanted: Tensor, weight: Tensor) -> Tensor:
        """[columns of `wanted`, hidden]: what reads it off a state; tokens count by weight."""
        weighted = self.states * weight[:, None]
        products = self.states.T @ weighted
        products.diagonal().add_(RIDGE * products.diagonal().mean())
        found: Tensor = torch.linalg.solve(products, weighted.T @ wanted)
        return found.T

    def average(self, wanted: Tensor) -> Tensor:
        """What reads a number a token, all tokens alike."""
        return self.probe(wanted[:, None], torch.ones(len(self.states)))[0]

    def constant(self) -> Tensor:
        return self.average(torch.ones(len(self.states)))

    def indicator(self, here: Tensor) -> Tensor:
        """What is one where `here` is true, and zero elsewhere."""
        rare = 1 + 0.5 / here.float().mean().clamp(min=0.01) * here
        return self.probe(here.float()[:, None], rare)[0]


class Head:
    """The first head of a woken layer, which looks nowhere and adds nothing yet.

    Dimensions that nothing is put into stay as they are on one side of each product, or they
    could never be learned.
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
        """Adds the product of what they read to the logits; `turned` is half for a quarter turn."""
        even = (self.scale * query.norm() / key.norm()).sqrt()
        self.query[pair + turned] = self.scale * query / even
        self.key[pair], self.key[pair + self.half] = key * even, 0.0

    def look_back(self, speeds: tuple[float, float], query: Tensor, key: Tensor) -> None:
        """The farther away, the less, as long as no pair has turned by a quarter."""
        within = (self.speeds > speeds[0]) & (self.speeds < speeds[1])
        for pair in torch.nonzero(within).flatten().tolist():
            self.look(pair, query, key, self.half)

    def look_alike(self, strength: float, reads: Tensor) -> None:
        """At what reads the same, in two dimensions a pair; [dimensions, hidden]"""
        size = (strength * self.scale) ** 0.5
        for at, read in enumerate(reads):
            dim = self.still[at // 2] + at % 2 * self.half
            self.query[dim] = self.key[dim] = size * read

    def tell(self, reads: Tensor, adds: Tensor) -> None:
        """[dimensions, hidden] each: what is read where it looks, and what that adds here."""
        # An optimizer that turns all rows alike would soon have lost a small one.
        even = (adds.norm(dim=-1) / reads.norm(dim=-1)).sqrt()[:, None]
        self.value[: len(reads)] = reads * even
        self.out[:, : len(adds)] = (adds / even).T


@torch.no_grad()
def install(
    network: Network, texts: Sequence[Sequence[int]], begun: Sequence[int], end: int
) -> None:
    """Wakes all layers, as `grow` does, with these heads in the first three of the new ones.

    `texts` are token ids of chats with tools. `begun` are those from a question's end to the name
    of a call, of which the last stands before the name of a definition too; `end` is the one behind
    the last definition.
    """
    name = begun[-1]
    first, second, third = sorted(set(range(network.shape.layers)) - set(network.used))[:3]
    depth = [sum(layer < new for layer in network.used) for new in (first, second, third)]
    assert depth[0] == depth[1], "the first two heads read the same states"
    early, late = (_seen(network, texts, at) for at in (depth[0], depth[2]))
    network.grow()
    codes, unread = _codes(network, early.ids)
    reads = early.probe(codes[early.ids], 1 / torch.bincount(early.ids)[early.ids] ** 0.7)
    quiet = _quiet(early, late)
    whose, found, flag = quiet[:CODE], quiet[CODE : 2 * CODE], quiet[-1]
    constant, is_end = early.constant(), early.indicator(early.ids == end)
    hidden = network.shape.hidden

    head = Head(network, first)
    head.look(head.still[-1], NAMED * constant, early.indicator(early.before == name))
    head.look(head.still[-2], NO_MORE * constant, is_end)
    head.look_back(NEAR, LATEST * constant, constant)
    head.tell(reads, LOUDNESS * early.size * whose)

    named = whose / (LOUDNESS * hidden**0.5)
    after = codes[end] @ named  # the words after all definitions belong to none
    head = Head(network, second)
    places = 2 * len(head.still) - 4  # the slowest two are for the rest
    head.look_alike(SAME * CODE / places, reads[:places])
    head.look(head.still[-1], NOT_ITSELF * constant, -after)
    told = torch.cat((named - torch.outer(codes[end], after), (constant - after)[None]))
    head.tell(told, LOUDNESS * early.size * torch.cat((found, flag[None])))

    quieter = late.size / (LOUDNESS * early.size * hidden**0.5)
    is_name = late.indicator(late.ids == name)
    often = torch.bincount(late.ids)[late.ids].float().log()
    rarity = (often.mean() - often) / often.std()  # that rare words match says more
    is_begun = late.indicator(torch.isin(late.ids, torch.tensor(begun)))
    head = Head(network, third)
    head.look(head.still[-1], FOUND * is_name, quieter * flag)
    head.look(head.still[-2], AFTER * is_name, codes[end] @ whose * quieter)
    head.look(head.still[-3], NO_MARKS * is_name, -is_begun)
    head.look(head.still[-4], RARE * is_name, late.average(rarity))
    head.look_back(NEARBY, RECENT * is_name, late.constant())
    head.tell(quieter * found, SAID * late.size * unread / network.norms[-1].clamp(min=0.1).cpu())


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
