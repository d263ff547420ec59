"""Latents are stored in the place of keys and values, where attention to them is proven."""

from collections.abc import Callable

import pytest
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from deployments.engine.forward.module import Module
from deployments.engine.loading.attention_check import find_decoding
from kv.layout import LayerShape
from tests.families import tiny
from tests.models import tiny_model

pytestmark = pytest.mark.skipif(
    not hasattr(DeepseekV3Attention, "expand_kv"), reason="needs a newer transformers"
)
RANK, ROTARY, HEADS, HEAD_DIM = 16, 8, 4, 16
LATENT = LayerShape(1, RANK + ROTARY, value_dim=RANK)
AS_HEADS_SEE_IT = LayerShape(HEADS, HEAD_DIM)


def test_a_token_of_a_layer_takes_a_latent_and_a_rotary_part() -> None:
    layout = find_decoding(tiny_model("deepseek_v3")).layout
    assert {*layout} == {LATENT}
    assert {shape.token_numbers for shape in layout} == {RANK + ROTARY}


def test_what_was_found_is_found_again() -> None:
    model = tiny_model("deepseek_v3")
    assert find_decoding(model) == find_decoding(model)


def test_the_weights_stay_what_and_where_they_were() -> None:
    model = tiny_model("deepseek_v3")
    before = {name: weight.data_ptr() for name, weight in model.named_parameters()}
    find_decoding(model)
    assert {name: weight.data_ptr() for name, weight in model.named_parameters()} == before


Expand = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]


def scaled_keys(module: nn.Module, latent: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor]:
    k, v = EXPAND(module, latent, rotary)
    return 2 * k, v


def values_of_the_next_head(
    module: nn.Module, latent: Tensor, rotary: Tensor
) -> tuple[Tensor, Tensor]:
    k, v = EXPAND(module, latent, rotary)
    return k, v.roll(1, 1)


EXPAND: Expand = getattr(DeepseekV3Attention, "expand_kv", values_of_the_next_head)


@pytest.mark.parametrize("expand", [scaled_keys, values_of_the_next_head])
def test_other_attention_under_the_same_names_stores_what_heads_see(
    monkeypatch: pytest.MonkeyPatch, expand: Expand
) -> None:
    monkeypatch.setattr(DeepseekV3Attention, "expand_kv", expand)
    assert {*find_decoding(tiny_model("deepseek_v3")).layout} == {AS_HEADS_SEE_IT}


def test_keys_that_are_changed_behind_their_expansion_are_stored_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forward = DeepseekV3Attention.forward

    def negated(module: Module, *args: object, **kwargs: object) -> object:
        made = module.expand_kv
        module.expand_kv = lambda *latents: tuple(-tensor for tensor in made(*latents))
        try:
            return forward(module, *args, **kwargs)
        finally:
            module.expand_kv = made

    monkeypatch.setattr(DeepseekV3Attention, "forward", negated)
    assert {*find_decoding(tiny_model("deepseek_v3")).layout} == {AS_HEADS_SEE_IT}


def changed_projections(model: PreTrainedModel, change: Callable[[nn.Linear], nn.Module]) -> None:
    for layer in model.model.layers:
        layer.self_attn.kv_b_proj = change(layer.self_attn.kv_b_proj)


class OtherLinear(nn.Linear):
    """It may compute something else."""


def test_a_projection_that_is_no_plain_matrix_is_left() -> None:
    model = tiny_model("deepseek_v3")

    def other(linear: nn.Linear) -> nn.Module:
        made = OtherLinear(linear.in_features, linear.out_features, bias=False)
        made.weight = linear.weight
        return made

    changed_projections(model, other)
    assert {*find_decoding(model).layout} == {AS_HEADS_SEE_IT}


@pytest.mark.parametrize("model_type", ["minicpm3", "deepseek_v2", "longcat_flash", "youtu"])
def test_latents_of_other_types_are_found(model_type: str) -> None:
    if model_type not in tiny.MODEL_TYPES:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    assert {*find_decoding(tiny.tiny_model(model_type)).layout} == {LATENT}
