"""Trains an EAGLE-3 head for the demo model: `python -m serve_app.demo.training.eagle --out head`.

It learns to say what the model itself would say behind each token of the corpus' answers. As in
EAGLE-3's training-time test it reads the model's states first, and in further passes its own.
"""

import json
import os
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from serve_app.demo.model_files import MODEL, load
from serve_app.demo.training.batches import IGNORED, ChatBatch, steps
from serve_app.demo.training.corpus.skills import LATE
from serve_app.demo.training.fused_ops import rms_norm
from serve_app.demo.training.network import (
    EPS,
    THETA,
    NetworkShape,
    angles,
    first_weights,
    light,
    precision,
    turned,
)
from serve_app.demo.training.run import (
    Length,
    Recipe,
    TrainingLesson,
    TrainingState,
    adam,
    arguments,
    muon,
    run,
)
from serve_app.demo.training.tokenizer import MAX_POSITIONS

TAPPED = (2, 4, 5)  # layers of the model, whose inputs the head reads
PASSES = 3  # of each text, the first of which alone reads the model's states
FADING = 0.8  # of the loss of a pass, in that of the one before it
TOKENS_A_BATCH, BATCHES = 2048, 2
MATRIX_RATE, OTHER_RATE = 0.02, 3e-3
HOURS = 0.1
NAMES = ("input_layernorm", "hidden_norm", "post_attention_layernorm")  # of the layer's norms
SHAPE = NetworkShape(
    hidden=256, layers=1, heads=4, kv_heads=2, head_dim=32, inner=256, first_layers=1
)


class HeadNetwork(nn.Module):
    """Float32 weights with fused projections. Embeddings and last matrix are the model's."""

    def __init__(self, shape: NetworkShape, model: LlamaForCausalLM, seed: int) -> None:
        """At first the head's state is what the last tapped layer reads."""
        super().__init__()
        self.shape = shape
        matrix, n = first_weights(seed), shape.hidden
        heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        joined = torch.zeros(n, len(TAPPED) * n)
        joined[:, -n:].fill_diagonal_(1.0)
        self.fc = nn.Parameter(joined)
        self.qkv = matrix(heads + 2 * kv_heads, 2 * n)
        self.out = matrix(n, heads)
        self.gate_up = matrix(2 * shape.inner, n)
        self.down = matrix(n, shape.inner)
        self.norms = nn.Parameter(torch.ones(len(NAMES), n))
        self.last_norm = nn.Parameter(model.model.norm.weight.detach().float().clone())

    def read(self, embedded: Tensor, states: Tensor, before: "Before") -> Tensor:
        """One pass over whole rows: embeddings and states of the tokens before them, both [rows,
        tokens, hidden]. Returns the head's own states of the tokens."""
        norms = light(self.norms)
        normed = [rms_norm(embedded, EPS) * norms[0], rms_norm(states, EPS) * norms[1]]
        projected = functional.linear(torch.cat(normed, -1), light(self.qkv))
        cos, sin = angles(torch.arange(embedded.shape[1]), self.shape.head_dim)
        mixed = before.attend(*turned(self.shape, projected, cos, sin))
        x = states + functional.linear(mixed, light(self.out))
        gate_up = light(self.gate_up) * norms[2]
        gate, up = functional.linear(rms_norm(x, EPS), gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, light(self.down))


class Before:
    """The keys and values of the passes over some rows.

    A token of pass number i sees those of the first pass up to i tokens before it, and of each
    further one a token nearer.
    """

    def __init__(self) -> None:
        self._passes: list[tuple[Tensor, Tensor]] = []

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[rows, tokens, heads * dim]"""
        self._passes.append((key, value))
        (first_keys, first_values), *further = self._passes
        rows, tokens, heads, dim = query.shape
        number, kv_heads = len(further), key.shape[2]
        q = query.view(rows, tokens, kv_heads, heads // kv_heads, dim) * dim**-0.5
        unseen = torch.ones(tokens, tokens, dtype=torch.bool).triu(1 - number)
        scores = torch.einsum("btkgd,bskd->btkgs", q, first_keys)
        scores = scores.masked_fill(unseen[:, None, None], -torch.inf)
        near = [
            (shifted(keys, number - i), shifted(values, number - i))
            for i, (keys, values) in enumerate(further, 1)
        ]
        own = [(q * keys[:, :, :, None]).sum(-1, keepdim=True) for keys, _ in near]
        weights = torch.cat([scores, *own], -1).float().softmax(-1).to(q.dtype)
        mixed = torch.einsum("btkgs,bskd->btkgd", weights[..., :tokens], first_values)
        for i, (_, values) in enumerate(near):
            mixed = mixed + weights[..., tokens + i, None] * values[:, :, :, None]
        return mixed.reshape(rows, tokens, heads * dim)


def shifted(x: Tensor, n: int) -> Tensor:
    """x [rows, tokens, ...] of the tokens `n` before; zeros for those before the first."""
    return x if not n else torch.cat([torch.zeros_like(x[:, :n]), x[:, :-n]], 1)


@dataclass(frozen=True)
class Taught:
    """The model's states of a batch, and what it says.

    embedded: [rows, tokens, hidden]. tapped: [rows, tokens, taps * hidden]. counted: [rows,
    tokens], the tokens behind which somebody answers. probs: [counted, vocabulary], of the next
    token, float32.
    """

    embedded: Tensor
    tapped: Tensor
    counted: Tensor
    probs: Tensor


@torch.no_grad()
def teach(model: LlamaForCausalLM, batch: ChatBatch) -> Taught:
    found = model.model(batch.ids, use_cache=False, output_hidden_states=True)
    counted = batch.targets != IGNORED
    tapped = torch.cat([found.hidden_states[layer] for layer in TAPPED], -1)
    logits = model.lm_head(found.last_hidden_state[counted])
    return Taught(found.hidden_states[0], tapped, counted, logits.float().softmax(-1))


def pass_losses(network: HeadNetwork, model: LlamaForCausalLM, batch: ChatBatch) -> list[Tensor]:
    """The sum of cross entropies to what the model says, of each pass."""
    taught, before, losses = teach(model, batch), Before(), list[Tensor]()
    states = functional.linear(taught.tapped, light(network.fc))
    for _ in range(PASSES):
        states = network.read(taught.embedded, shifted(states, 1), before)
        final = rms_norm(states[taught.counted], EPS) * light(network.last_norm)
        said = functional.linear(final, model.lm_head.weight).float().log_softmax(-1)
        losses.append(-(taught.probs * said).sum())
    return losses


def lesson_of(
    network: HeadNetwork, model: LlamaForCausalLM, batches: Sequence[ChatBatch]
) -> TrainingLesson:
    counted = sum(batch.counted for batch in batches)
    weights = [FADING**i for i in range(PASSES)]

    def part(batch: ChatBatch) -> Tensor:
        losses = pass_losses(network, model, batch)
        weighed = [weight * loss for weight, loss in zip(weights, losses, strict=True)]
        return torch.stack(weighed).sum() / (counted * sum(weights))

    seen = sum(batch.tokens for batch in batches)
    return TrainingLesson([partial(part, batch) for batch in batches], seen)


def begin(
    shape: NetworkShape, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, seed: int
) -> TrainingState[HeadNetwork]:
    network = HeadNetwork(shape, model, seed)
    matrices = [network.fc, network.qkv, network.out, network.gate_up, network.down]
    rated = [([matrix], MATRIX_RATE) for matrix in matrices]
    where = network.fc.device
    optimizers = [
        *(muon(where, half) for half in (rated[:2], rated[2:])),  # for two workers
        adam([([network.norms, network.last_norm], 0.0, OTHER_RATE)]),
    ]
    return TrainingState(network, tokenizer, optimizers)


def recipe_of(model: LlamaForCausalLM) -> Recipe[HeadNetwork]:
    def lessons(
        state: TrainingState[HeadNetwork], length: Length, seed: int
    ) -> Generator[TrainingLesson]:
        source = steps(state.tokenizer, seed, state.step, TOKENS_A_BATCH, BATCHES, LATE)
        while length.share(state) < 1.0:
            yield lesson_of(state.network, model, next(source))

    return Recipe(lessons, export, "tokens")


def export(network: HeadNetwork, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Writes the files that heads have, in bfloat16, each of them whole."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        config = json.dumps(config_of(network.shape), indent=1)
        (Path(folder) / "config.json").write_text(f"{config}\n", encoding="utf-8")
        tensors = {name: x.bfloat16().contiguous() for name, x in named_weights(network).items()}
        save_file(tensors, Path(folder) / "model.safetensors", {"format": "pt"})
        for file in Path(folder).iterdir():
            file.chmod(0o644)
            os.replace(file, out / file.name)


def config_of(shape: NetworkShape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": [*TAPPED],
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "max_position_embeddings": MAX_POSITIONS,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "vocab_size": shape.vocabulary,
    }


def named_weights(network: HeadNetwork) -> dict[str, Tensor]:
    """Views of the weights, by their names in a head's file."""
    shape = network.shape
    heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    query, key, value = torch.split(network.qkv.detach(), [heads, kv_heads, kv_heads])
    gate, up = network.gate_up.detach().chunk(2)
    parts = {
        "self_attn.q_proj": query,
        "self_attn.k_proj": key,
        "self_attn.v_proj": value,
        "self_attn.o_proj": network.out.detach(),
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": network.down.detach(),
        **dict(zip(NAMES, network.norms.detach(), strict=True)),
    }
    named = {f"midlayer.{part}.weight": weight for part, weight in parts.items()}
    return {**named, "fc.weight": network.fc.detach(), "norm.weight": network.last_norm.detach()}


def main() -> None:
    parser = arguments("Train a draft head for the demo model.", Path("head"))
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.set_defaults(hours=HOURS)
    args = parser.parse_args()
    model, tokenizer = load(args.model)
    model = model.to(precision(model.device)).requires_grad_(False).eval()
    run(recipe_of(model), args, lambda: begin(SHAPE, model, tokenizer, args.seed))


if __name__ == "__main__":
    main()
