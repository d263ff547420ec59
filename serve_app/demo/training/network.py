"""The demo network: a Llama written for training, its shapes, and its files in bfloat16."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ProcessorMixin,
)

from serve_app.demo.training.batches import IGNORED
from serve_app.demo.training.fused_ops import causal_attention, rms_norm, rotate, total_loss
from serve_app.demo.training.tokenizer import END, END_OF_TEXT, MAX_POSITIONS, VOCABULARY

EPS = 1e-5
# Few of a small head's dimensions turn slowly enough to tell what a token is at any distance; with
# the usual 10,000 it would be a quarter of them.
THETA = 1e6

Attend = Callable[[Tensor], Tensor]  # of queries, keys and values side by side


@dataclass(frozen=True)
class NetworkShape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    first_layers: int  # that a training begins with
    vocabulary: int = VOCABULARY

    @property
    def group(self) -> int:
        """Query heads to a key and value head."""
        return self.heads // self.kv_heads


# 5.8 M parameters
DEMO = NetworkShape(
    hidden=256, layers=6, heads=4, kv_heads=2, head_dim=64, inner=768, first_layers=2
)
# 1.0 M parameters
DRAFT = NetworkShape(
    hidden=128, layers=3, heads=4, kv_heads=2, head_dim=32, inner=320, first_layers=3
)


class Network(nn.Module):
    """Float32 weights with fused projections; embeddings are tied.

    At first a part of the layers is used, evenly spaced; the others add nothing to what passes
    them until `grow` wakes them as copies of the ones below.
    """

    def __init__(self, shape: NetworkShape, seed: int) -> None:
        super().__init__()
        self.shape = shape
        matrix, deep = first_weights(seed), 0.02 / (2 * shape.layers) ** 0.5
        heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        every = range(shape.layers)
        self.embed = matrix(shape.vocabulary, shape.hidden)
        self.qkv = nn.ParameterList([matrix(heads + 2 * kv_heads, shape.hidden) for _ in every])
        self.out = nn.ParameterList([matrix(shape.hidden, heads, deep) for _ in every])
        self.gate_up = nn.ParameterList([matrix(2 * shape.inner, shape.hidden) for _ in every])
        self.down = nn.ParameterList([matrix(shape.hidden, shape.inner, deep) for _ in every])
        self.norms = nn.Parameter(torch.ones(2 * shape.layers + 1, shape.hidden))
        self.used = list(every)[:: shape.layers // shape.first_layers]
        with torch.no_grad():
            for layer in set(every) - set(self.used):
                self.out[layer].zero_()
                self.down[layer].zero_()

    @torch.no_grad()
    def grow(self) -> None:
        """Uses all layers. What the network computes stays the same, for now."""
        source = 0
        for layer in range(self.shape.layers):
            if layer in self.used:
                source = layer
                continue
            self.qkv[layer].copy_(self.qkv[source])
            self.gate_up[layer].copy_(self.gate_up[source])
            self.norms[2 * layer : 2 * layer + 2] = self.norms[2 * source : 2 * source + 2]
        self.used = list(range(self.shape.layers))

    def get_extra_state(self) -> list[int]:
        """Which layers are used, for a checkpoint."""
        return self.used

    def set_extra_state(self, state: list[int]) -> None:
        self.used = state

    def matrices(self) -> list[nn.ParameterList]:
        """The weights of the layers, by their shapes."""
        return [self.qkv, self.out, self.gate_up, self.down]

    def heads(self, layer: int) -> tuple[Tensor, ...]:
        """Views of the weights of a layer's queries, keys and values: each [heads, dim, hidden]."""
        shape = self.shape
        rows = self.qkv[layer].unflatten(0, (-1, shape.head_dim))
        return torch.split(rows, [shape.heads, shape.kv_heads, shape.kv_heads])


def first_weights(seed: int) -> Callable[..., nn.Parameter]:
    """Returns a maker of random matrices: of so many rows, columns, and a scale."""
    made = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, scale: float = 0.02) -> nn.Parameter:
        return nn.Parameter(scale * torch.randn(rows, columns, generator=made))

    return matrix


def answer_loss(network: Network, ids: Tensor, targets: Tensor) -> Tensor:
    """The sum of cross entropies over the targets that count, whose logits alone are computed."""
    counted = targets != IGNORED
    final = _hidden(network, ids, counted) * light(network.norms)[-1]
    return total_loss(functional.linear(final, light(network.embed)), targets[counted])


def precision(device: torch.device) -> torch.dtype:
    """Returns the dtype to compute in.

    Without instructions of its own, bfloat16 is slower than float32.
    """
    known = torch.cpu.get_capabilities()
    fast = device.type != "cpu" or known.get("amx_bf16") or known.get("avx512_bf16")
    return torch.bfloat16 if fast else torch.float32


def light(weight: Tensor) -> Tensor:
    return weight.to(precision(weight.device))


def _hidden(network: Network, ids: Tensor, counted: Tensor) -> Tensor:
    """[counted, hidden], normalized"""
    *before, last = network.used
    x, attend = _embedded(network, ids)
    for layer in before:
        x = through(network, layer, x, attend)
    return rms_norm(through(network, last, x, attend, counted), EPS)


def states(network: Network, ids: Tensor) -> list[Tensor]:
    """Returns the input of each layer in use, and the output of the last: [rows, tokens, hidden]"""
    x, attend = _embedded(network, ids)
    left = [x]
    for layer in network.used:
        left.append(through(network, layer, left[-1], attend))
    return left


def _embedded(network: Network, ids: Tensor) -> tuple[Tensor, Attend]:
    """[rows, tokens, hidden], and the attention of whole rows."""
    cos, sin = angles(torch.arange(ids.shape[1], device=ids.device), network.shape.head_dim)

    def attend(projected: Tensor) -> Tensor:
        return causal_attention(*turned(network.shape, projected, cos, sin))

    return functional.embedding(ids, light(network.embed)), attend


def turned(
    shape: NetworkShape, projected: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, [..., heads, dim], of which the first two know their positions."""
    parts = projected.view(*projected.shape[:-1], -1, shape.head_dim)
    both, value = torch.split(parts, [shape.heads + shape.kv_heads, shape.kv_heads], -2)
    query, key = torch.split(rotate(both, cos, sin), [shape.heads, shape.kv_heads], -2)
    return query, key, value


def through(
    network: Network, layer: int, x: Tensor, attend: Attend, kept: Tensor | None = None
) -> Tensor:
    """One layer; from its attention on for the tokens alone that are kept."""
    norms = light(network.norms)
    # A norm's weight goes into the projection behind it: there are fewer weights than tokens.
    qkv = light(network.qkv[layer]) * norms[2 * layer]
    mixed = attend(functional.linear(rms_norm(x, EPS), qkv))
    if kept is not None:
        x, mixed = x[kept], mixed[kept]
    x = x + functional.linear(mixed, light(network.out[layer]))
    gate_up = light(network.gate_up[layer]) * norms[2 * layer + 1]
    gate, up = functional.linear(rms_norm(x, EPS), gate_up).chunk(2, -1)
    return x + functional.linear(functional.silu(gate) * up, light(network.down[layer]))


def angles(positions: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, [positions, 1, dim / 2]"""
    rates = THETA ** (-torch.arange(0, dim, 2, device=positions.device) / dim)
    turns = torch.outer(positions.float(), rates)[:, None]
    return light(turns.cos()), light(turns.sin())


def config(shape: NetworkShape, tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=True,
        rms_norm_eps=EPS,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        pad_token_id=tokenizer.convert_tokens_to_ids(END_OF_TEXT),
    )


def llama(network: Network, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """The same network as transformers has it, in float32."""
    model = LlamaForCausalLM(config(network.shape, tokenizer))
    state = {name: weight.cpu() for name, weight in named_weights(network).items()}
    model.load_state_dict({**state, "lm_head.weight": state["model.embed_tokens.weight"]})
    model.generation_config = generation(tokenizer)
    return model


def named_weights(network: Network, layers: Sequence[int] = ()) -> dict[str, Tensor]:
    """Views of the weights, by their names in a Llama of these layers; else of all."""
    norms = network.norms.detach()
    named = {"model.embed_tokens.weight": network.embed.detach(), "model.norm.weight": norms[-1]}
    shape = network.shape
    heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for number, at in enumerate(layers or range(shape.layers)):
        query, key, value = torch.split(network.qkv[at].detach(), [heads, kv_heads, kv_heads])
        gate, up = network.gate_up[at].detach().chunk(2)
        parts = {
            "input_layernorm": norms[2 * at],
            "self_attn.q_proj": query,
            "self_attn.k_proj": key,
            "self_attn.v_proj": value,
            "self_attn.o_proj": network.out[at].detach(),
            "post_attention_layernorm": norms[2 * at + 1],
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": network.down[at].detach(),
        }
        named |= {f"model.layers.{number}.{part}.weight": weight for part, weight in parts.items()}
    return named


def export(network: Network, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    write_files(out, llama(network, tokenizer), tokenizer)


def write_files(
    out: Path, model: PreTrainedModel, reader: PreTrainedTokenizerFast | ProcessorMixin
) -> None:
    """Writes each file whole: somebody who reads sees the old one or the new one."""
    out.mkdir(parents=True, exist_ok=True)
    light = model.to(torch.bfloat16)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        light.save_pretrained(folder)
        reader.save_pretrained(folder)
        for file in Path(folder).iterdir():
            file.chmod(0o644)
            os.replace(file, out / file.name)


def generation(tokenizer: PreTrainedTokenizerFast) -> GenerationConfig:
    """How to sample where a request does not say: so small a model is unsure of much, and what it
    holds for second best is mostly wrong.
    """
    return GenerationConfig(
        do_sample=True,
        temperature=0.3,
        top_p=0.9,
        eos_token_id=tokenizer.convert_tokens_to_ids([END, END_OF_TEXT]),
        pad_token_id=tokenizer.convert_tokens_to_ids(END_OF_TEXT),
    )
