"""The trained network as transformers and servers read it: LLaVA's files."""

from pathlib import Path

from torch import Tensor
from transformers import (
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from serve_app.demo.training.network import EPS, generation, named_weights, write_files
from serve_app.demo.training.network import config as llama_config
from serve_app.demo.training.vision.corpus import IMAGE
from serve_app.demo.training.vision.network import MEAN, STD, SightNetwork, Tower, TowerShape

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
RESAMPLE = 3  # bicubic, as pillow counts
STRATEGY = "default"  # without CLIP's class token


def with_picture(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The draft's tokenizer, with the token that stands for a patch."""
    tokenizer.add_tokens([IMAGE], special_tokens=True)
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return tokenizer


def processor(shape: TowerShape, tokenizer: PreTrainedTokenizerFast) -> LlavaProcessor:
    square = {"height": shape.side, "width": shape.side}
    pictures = CLIPImageProcessorPil(
        size=square,
        crop_size=square,
        do_center_crop=False,
        resample=RESAMPLE,
        image_mean=[MEAN] * 3,
        image_std=[STD] * 3,
    )
    return LlavaProcessor(
        pictures,
        tokenizer,
        patch_size=shape.patch,
        vision_feature_select_strategy=STRATEGY,
        chat_template=tokenizer.chat_template,
        image_token=IMAGE,
        num_additional_image_tokens=1,
    )


def config(network: SightNetwork, tokenizer: PreTrainedTokenizerFast) -> LlavaConfig:
    shape = network.tower.shape
    vision = CLIPVisionConfig(
        image_size=shape.side,
        patch_size=shape.patch,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
        hidden_act="gelu_pytorch_tanh",
        layer_norm_eps=EPS,
        projection_dim=shape.hidden,
    )
    text = llama_config(network.language.shape, tokenizer)
    return LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        image_seq_length=shape.patches,
        vision_feature_layer=-1,
        vision_feature_select_strategy=STRATEGY,
        tie_word_embeddings=True,
        eos_token_id=text.eos_token_id,
        pad_token_id=text.pad_token_id,
    )


def llava(
    network: SightNetwork, tokenizer: PreTrainedTokenizerFast
) -> LlavaForConditionalGeneration:
    """The same network as transformers has it, in float32."""
    model = LlavaForConditionalGeneration(config(network, tokenizer))
    text = {
        name.replace("model.", "model.language_model.", 1): weight
        for name, weight in named_weights(network.language).items()
    }
    text["lm_head.weight"] = text["model.language_model.embed_tokens.weight"]
    missing, unknown = model.load_state_dict({**text, **_named(network.tower)}, strict=False)
    # The norm behind CLIP's last layer is not used.
    assert not unknown, unknown
    assert all("post_layernorm" in name for name in missing), missing
    model.generation_config = generation(tokenizer)
    return model


def _named(tower: Tower) -> dict[str, Tensor]:
    shape, place = tower.shape, "model.vision_tower"
    side = (shape.hidden, 3, shape.patch, shape.patch)
    named = {
        f"{place}.embeddings.class_embedding": tower.first[0],
        f"{place}.embeddings.patch_embedding.weight": tower.patch.view(side),
        f"{place}.embeddings.position_embedding.weight": tower.positions,
        f"{place}.pre_layrnorm.weight": tower.norms[0],
        f"{place}.pre_layrnorm.bias": tower.norm_biases[0],
    }
    for layer in range(shape.layers):
        named |= {
            f"{place}.encoder.layers.{layer}.{name}": weight
            for name, weight in _named_layer(tower, layer).items()
        }
    for at, part in enumerate(("linear_1", "linear_2")):
        named[f"model.multi_modal_projector.{part}.weight"] = tower.projector[at]
        named[f"model.multi_modal_projector.{part}.bias"] = tower.projector_biases[at]
    return {name: weight.detach() for name, weight in named.items()}


def _named_layer(tower: Tower, layer: int) -> dict[str, Tensor]:
    qkv_bias, out_bias, up_bias, down_bias = (bias[layer] for bias in tower.biases)
    parts = {
        "self_attn.out_proj": (tower.out[layer], out_bias),
        "mlp.fc1": (tower.up[layer], up_bias),
        "mlp.fc2": (tower.down[layer], down_bias),
        "layer_norm1": (tower.norms[2 * layer + 1], tower.norm_biases[2 * layer + 1]),
        "layer_norm2": (tower.norms[2 * layer + 2], tower.norm_biases[2 * layer + 2]),
    }
    for name, weight, bias in zip("qkv", tower.qkv[layer].chunk(3), qkv_bias.chunk(3), strict=True):
        parts[f"self_attn.{name}_proj"] = weight, bias
    return {
        f"{part}.{kind}": value
        for part, both in parts.items()
        for kind, value in zip(("weight", "bias"), both, strict=True)
    }


def export(network: SightNetwork, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    write_files(out, llava(network, tokenizer), processor(network.tower.shape, tokenizer))
