"""A draft head computes what its files say, in both of their forms, or is refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.attention.interface import AttentionParams
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.kernels.norms import HeadNorm
from deployments.engine.kernels.rotary import RotaryEmbedding
from deployments.engine.loading.draft_heads.head_config import head_fields
from deployments.engine.loading.draft_heads.head_files import load_head
from tests.checkpoints import save_checkpoint
from tests.heads import (
    HEADS,
    HIDDEN,
    KV_HEADS,
    VOCAB,
    PlainHead,
    Tensors,
    as_llama,
    as_speculators,
    head_tensors,
    save_head,
)
from tests.models import tiny_model

HEADS_OF_ALL_KINDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "of Llama's form": (as_llama(), ()),
    "of speculators' form": (as_speculators(norm_before_residual=False), ()),
    "residual": (as_speculators(norm_before_residual=True), ()),
    "few tokens": (as_llama(draft_vocab_size=40), ("embed_tokens",)),
    "norms": (as_llama(norm_before_fc=True, norm_output=True), ("head_norms",)),
    "a norm for each": (as_llama(fc_norm=True, norm_before_residual=True), ("biases",)),
    "two layers": (as_speculators(eagle_aux_hidden_state_layer_ids=[1, 2]), ()),
    "another size": (as_speculators(target_hidden_size=24), ("embed_tokens",)),
    "within": (as_llama(eagle_config={"norm_before_fc": True, "use_aux_hidden_state": True}), ()),
}


class WholeAttention:
    """Attends to all of one sequence, which is computed at once."""

    def attend_qkv(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
        params: AttentionParams,
    ) -> Tensor:
        q, k, v = (part.clone() for part in torch.split(qkv, [HEADS, KV_HEADS, KV_HEADS], 1))
        if norms is not None:
            q, k = norms[0](q), norms[1](k)  # type: ignore[operator]
        q, k = rotary.apply_(q), rotary.apply_(k)
        q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
        out = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True, scale=params.scale
        )
        return out[0].transpose(0, 1)


@torch.inference_mode()
@pytest.mark.parametrize("name", HEADS_OF_ALL_KINDS)
def test_a_head_computes_what_its_files_say(name: str, tmp_path: Path) -> None:
    config, also = HEADS_OF_ALL_KINDS[name]
    options = {**config, **config.get("eagle_config", {})}
    options.setdefault("norm_before_residual", "speculators_model_type" in config)
    tensors = head_tensors(options, *also)
    head = load_head(save_head(tmp_path, config, tensors), torch.float32, "cpu").module
    model = tiny_model()
    plain = PlainHead(tensors, options, model)
    size, n_taps = head.config.target_size, head.config.n_taps
    tapped = [torch.randn(9, size) for _ in range(n_taps)]
    joined, token_ids = head.join(torch.cat(tapped, 1)), torch.randint(VOCAB, (9,))
    torch.testing.assert_close(joined, plain.join(tapped), rtol=1e-4, atol=1e-4)
    embedding = head.embed_tokens if "embed_tokens" in also else model.get_input_embeddings()
    step = WholeAttention()
    output = head(embedding(token_ids), joined.clone(), torch.arange(9), step)
    logits, own = plain(token_ids, joined)
    torch.testing.assert_close(head.logits(output, head.lm_head, VOCAB), logits)
    torch.testing.assert_close(head.own_states(output), own)


def test_layers_are_counted_by_what_they_read_or_by_what_they_return(tmp_path: Path) -> None:
    for config, expected in (
        (as_llama(), (2, 18, 33)),
        (as_speculators(eagle_aux_hidden_state_layer_ids=[3, 9, 30]), (3, 9, 30)),
        (as_llama(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 17, 32]}), (2, 18, 33)),
        (as_llama(eagle_config={"eagle_aux_hidden_state_layer_ids": []}), (2, 18, 33)),
    ):
        path = save_head(tmp_path, config, head_tensors(config))
        assert load_head(path, torch.float32, "cpu").config.tapped_of(36) == expected


def test_weights_may_be_in_a_file_of_torch(tmp_path: Path) -> None:
    path = save_head(tmp_path, as_llama(), {})
    (tmp_path / "model.safetensors").unlink()
    torch.save(head_tensors(as_llama()), tmp_path / "pytorch_model.bin")
    assert load_head(path, torch.bfloat16, "cpu").dtype is torch.bfloat16


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


SAME: Callable[[Tensors], Tensors] = dict
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
REFUSED: dict[str, tuple[dict[str, Any], Callable[[Tensors], Tensors]]] = {
    "of type 'peagle' of speculators": (as_speculators(speculators_model_type="peagle"), SAME),
    "is a EagleLlamaForCausalLM": (as_llama(architectures=["EagleLlamaForCausalLM"]), SAME),
    "num_hidden_layers of the draft head is 4": (as_llama(num_hidden_layers=4), SAME),
    "hidden_act of the draft head is 'gelu'": (as_llama(hidden_act="gelu"), SAME),
    "parallel_drafting of the draft head": (as_llama(parallel_drafting=True), SAME),
    "use_aux_hidden_state": (as_llama(eagle_config={"use_aux_hidden_state": False}), SAME),
    "quantization_config": (as_llama(quantization_config={"quant_method": "fp8"}), SAME),
    "rotary embedding of type 'dynamic'": (as_llama(rope_scaling={"type": "dynamic"}), SAME),
    "fc_norm of the draft head is 3": (as_llama(fc_norm=3), SAME),
    "attends within a window": (as_llama(layer_types=["sliding_attention"]), SAME),
    "layer is of type 'gemma'": (
        as_speculators(transformer_layer_config={"model_type": "gemma"}),
        SAME,
    ),
    "no layers": (as_llama(eagle_aux_hidden_state_layer_ids=[-1, 2, 3]), SAME),
    "has no hidden_size": (
        {name: value for name, value in as_llama().items() if name != "hidden_size"},
        SAME,
    ),
    "hidden_size of its config is 0": (as_llama(hidden_size=0), SAME),
    "lack weights: fc.weight": (as_llama(), without("fc.weight")),
    "not known: enorm.weight": (
        as_llama(),
        lambda tensors: {**tensors, "enorm.weight": torch.ones(HIDDEN)},
    ),
    r"fc.weight is \[32, 64\], not \[32, 96\]": (
        as_llama(),
        lambda tensors: {**tensors, "fc.weight": tensors["fc.weight"][:, :64]},
    ),
    "are quantized": (
        as_llama(),
        lambda tensors: {**tensors, "fc.weight": tensors["fc.weight"].char()},
    ),
    "says 40 of 128 tokens, and its files lack d2t": (
        as_llama(draft_vocab_size=40),
        without("d2t"),
    ),
    "says 40 of 128 tokens, and its files lack lm_head": (
        as_llama(draft_vocab_size=40),
        without("lm_head.weight"),
    ),
    "d2t of the draft head does not name 40 tokens": (
        as_llama(draft_vocab_size=40),
        lambda tensors: {**tensors, "d2t": tensors["d2t"] - 50},
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_supported_is_refused_by_name(reason: str, tmp_path: Path) -> None:
    config, change = REFUSED[reason]
    tensors = head_tensors(as_llama(draft_vocab_size=config.get("draft_vocab_size", VOCAB)))
    path = save_head(tmp_path, config, change(tensors))
    with pytest.raises(UnsupportedModelError, match=reason):
        load_head(path, torch.float32, "cpu")


def test_rotary_embeddings_are_those_of_the_config(tmp_path: Path) -> None:
    found = [
        load_head(save_head(tmp_path, config, head_tensors(config)), torch.float32, "cpu")
        for config in (as_llama(), as_llama(rope_scaling=YARN))
    ]
    plain, scaled = (head.module.rotary_emb.get_buffer("inv_freq") for head in found)
    assert float(plain[0] / scaled[0]) == 1
    assert float(plain[-1] / scaled[-1]) == 4


def test_what_is_a_head_is_known_by_its_config(tmp_path: Path) -> None:
    one_layer = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
    for fields, is_head in (
        (as_llama(), True),
        (as_speculators(speculators_model_type="dflash"), True),
        (one_layer, False),
        ({**one_layer, "draft_vocab_size": 40}, True),
    ):
        path = save_head(tmp_path, fields, {"fc.weight": torch.ones(1)})
        assert (head_fields(path) is not None) == is_head
    assert head_fields(str(save_checkpoint(tmp_path / "model"))) is None
