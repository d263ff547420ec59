"""The gated delta rule for few tokens, beside transformers' own layers and beside itself."""

import pytest
import torch
from torch import Tensor
from transformers import PretrainedConfig, Qwen3_5TextConfig, Qwen3NextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from deployments.engine.forward.module import Module
from deployments.engine.forward.state_pool import CacheOfRows, NoStates, StatePool
from deployments.engine.forward.states.delta_net import DeltaNet, delta_net
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.kernels.cpu.states.delta_ops import TokenSlots

pytestmark = pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
HIDDEN, N_SLOTS, N_BEFORE, N_NEW = 64, 16, 5, 4
SIZES = {
    "hidden_size": HIDDEN,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,  # a head of keys has two of them
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 40,  # no whole vectors
}
KINDS: dict[str, tuple[type[Module], type[PretrainedConfig]]] = {
    "qwen3_5": (Qwen3_5GatedDeltaNet, Qwen3_5TextConfig),
    "qwen3_next": (Qwen3NextGatedDeltaNet, Qwen3NextConfig),
}
MAX_ERROR = 0.02  # relative, of bfloat16 that is rounded some five times


@torch.inference_mode()
def made(kind: str) -> tuple[Module, DeltaNet]:
    torch.manual_seed(5)
    module_type, config_type = KINDS[kind]
    module: Module = module_type(config_type(**SIZES), 0)
    for weight in module.parameters():
        weight.normal_(0, 0.5 if weight.ndim == 1 else 0.2)
    net = delta_net(module.bfloat16().eval())
    assert net is not None
    return module, net


def hidden(n: int) -> Tensor:
    return torch.randn(n, HIDDEN, generator=torch.Generator().manual_seed(n)).bfloat16()


def slots_of(*rows: tuple[int, list[int]]) -> TokenSlots:
    """Rows, each with the slot that it reads and those that its tokens write."""
    read = [slot for first, written in rows for slot in (first, *written[1:])]
    starts = torch.tensor([0, *(len(written) for _, written in rows)]).cumsum(0)
    written = [slot for _, of_row in rows for slot in of_row]
    return TokenSlots(torch.tensor([read, written]), torch.cat([torch.tensor([len(rows)]), starts]))


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_transformers_does(kind: str) -> None:
    """It does so from the first token on, and behind states that transformers has computed."""
    module, net = made(kind)
    pool, x = StatePool(N_SLOTS), hidden(N_BEFORE + N_NEW)
    whole, begun = CacheOfRows(NoStates(), 0), CacheOfRows(NoStates(), 0)
    expected = module(x[None], cache=whole)[0]
    module(x[None, :N_BEFORE], cache=begun)
    pool.write(torch.tensor([3]), begun.written)
    found = net(x[N_BEFORE:], slots_of((3, [-1, -1, -1, 4])), pool)
    assert error(found, expected[N_BEFORE:]) < MAX_ERROR
    behind = pool.rows(torch.tensor([4]))
    for key, state in whole.written.items():
        told = behind.get(key)
        assert told is not None
        assert error(told, state) < MAX_ERROR
    fresh = net(x, slots_of((-1, [-1] * (N_BEFORE + N_NEW))), pool)
    assert error(fresh, expected) < MAX_ERROR


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_at_once_or_one_by_one_and_beside_others_are_the_same(kind: str) -> None:
    """So the states behind drafts that were right are those of plain steps, to the bit."""
    _, net = made(kind)
    pool, x = StatePool(N_SLOTS), hidden(2 * N_NEW)
    at_once = net(x, slots_of((-1, [0, 1, 2, 3]), (-1, [4, 5, 6, 7])), pool)
    read, one_by_one = -1, list[Tensor]()
    for token in range(N_NEW):
        written = 8 + token
        one_by_one.append(net(x[token : token + 1], slots_of((read, [written])), pool))
        read = written
    assert torch.equal(torch.cat(one_by_one), at_once[:N_NEW])
    for mine, theirs in zip(range(8, 8 + N_NEW), range(N_NEW), strict=True):
        for state in pool._states.values():
            assert torch.equal(state[mine], state[theirs])
