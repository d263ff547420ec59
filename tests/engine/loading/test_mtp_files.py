"""The MTP head in a model's own files is read whole, or refused by name."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.draft_heads.mtp_families import (
    EMBEDDING_NORM,
    LAST_NORM,
    LAYER,
    PROJECTION,
    STATE_NORM,
)
from deployments.engine.loading.draft_heads.mtp_files import (
    LoadedMtp,
    has_unused_head,
    load_mtp,
    made_mtp,
)
from deployments.engine.loading.loaded_model import LoadedModel
from tests.engine.loading.formats.checkpoints import save
from tests.engine.loading.formats.writers import fp8
from tests.models import VOCAB, tiny_model
from tests.mtp_heads import (
    CONFIGS_WITH_HEADS,
    PlainMtp,
    Tensors,
    in_files,
    model_with_head,
    mtp_tensors,
)


def saved(folder: Path, family: str, change: Callable[[Tensors], Tensors] = dict) -> LoadedModel:
    """A model, the head of which alone is in the files of a folder."""
    model = model_with_head(family)
    config = model.config.to_dict()
    if family == "mimo":
        config |= {"model_type": "mimo", "architectures": ["MiMoForCausalLM"]}
    save(folder, change(in_files(model, mtp_tensors(model, family))), config)
    return LoadedModel(model)


def weights(head: LoadedMtp) -> Tensors:
    return {name: t for part in head.parts() for name, t in part.state_dict().items()}


@pytest.mark.parametrize("family", CONFIGS_WITH_HEADS)
def test_all_tensors_are_read_by_the_names_of_their_family(family: str, tmp_path: Path) -> None:
    model = saved(tmp_path, family)
    assert has_unused_head(str(tmp_path), model)
    found = weights(load_mtp(str(tmp_path), model))
    expected = weights(made_mtp(model, mtp_tensors(model.model, family)))
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


@torch.inference_mode()
@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe"])
def test_it_computes_what_transformers_computes(family: str) -> None:
    model = model_with_head(family)
    tensors = mtp_tensors(model, family)
    theirs = MtpModel(model, 1).eval()
    names = {LAYER: "mtp_block.", EMBEDDING_NORM: "enorm", STATE_NORM: "hnorm"}
    names |= {PROJECTION: "eh_proj", LAST_NORM: "post_norm"}
    for ours, other in names.items():
        part = {
            other + name.removeprefix(ours): tensor
            for name, tensor in tensors.items()
            if name.startswith(ours)
        }
        assert not theirs.layers[0].load_state_dict(part, strict=False).unexpected_keys
    ids, states = torch.randint(VOCAB, (1, 9)), torch.randn(1, 9, model.config.hidden_size)
    positions = torch.arange(9)[None]
    cache = MtpCache(config=model.config.get_mtp_config())
    expected = theirs.forward_layer(0, states, positions, cache, input_ids=ids)[0]
    logits, own = PlainMtp(tensors, model, family)(ids[0], states[0])
    torch.testing.assert_close(own, expected)
    torch.testing.assert_close(logits, model.lm_head(expected))


@torch.inference_mode()
def test_quantized_weights_are_read_as_those_of_the_model(tmp_path: Path) -> None:
    model, generator = model_with_head("deepseek_v3"), torch.Generator().manual_seed(0)
    tensors, writer = mtp_tensors(model, "deepseek_v3"), fp8((16, 16))
    stored, plain = Tensors(), Tensors()
    for name, tensor in in_files(model, tensors).items():
        plain[name], module = tensor, name.removesuffix(".weight")
        if not module.endswith("_proj") or module.endswith("eh_proj"):
            stored[name] = tensor
            continue
        made = writer.write(generator, *tensor.shape)
        plain[name] = made.weight
        stored |= {module + end: part for end, part in made.tensors.items()}
    config = model.config.to_dict()
    found, ids = list[Tensor](), torch.arange(9)[None]
    for folder, kept, options in (
        (tmp_path / "plain", plain, {}),
        (tmp_path / "fp8", stored, {"quantization_config": writer.options}),
    ):
        folder.mkdir()
        save(folder, kept, {**config, **options})
        head = load_mtp(str(folder), LoadedModel(model))
        found.append(head.layers(input_ids=ids, use_cache=False).logits)
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if name not in key}


def besides(name: str, tensor: Tensor) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: tensor}


REFUSED: dict[str, tuple[str, Callable[[Tensors], Tensors]]] = {
    "no MTP head .mtp": ("qwen3_5", lambda tensors: {"lm_head.weight": torch.ones(1)}),
    "MTP head of qwen3_5_text: its files lack weights: .*q_proj.weight": (
        "qwen3_5",
        without("q_proj"),
    ),
    "joins by weights": ("qwen3_5", without("mtp.fc")),
    "not known: mtp.layers.1.q.weight": (
        "qwen3_5",
        besides("mtp.layers.1.q.weight", torch.ones(1)),
    ),
    "not known: mtp.embed_tokens.weight": (
        "qwen3_5",
        besides("mtp.embed_tokens.weight", torch.ones(VOCAB, 32)),
    ),
    "not known: model.layers.4.enorm.weight": (
        "deepseek_v3",
        besides("model.layers.4.enorm.weight", torch.ones(32)),
    ),
    "has no weights model.layers.0.self_attn.indexer": (
        "deepseek_v3",
        besides("model.layers.3.self_attn.indexer.wk.weight", torch.ones(1)),
    ),
    r"weights are not as its config says: .*o_proj.weight is \[3\]": (
        "qwen3_5",
        besides("mtp.layers.0.self_attn.o_proj.weight", torch.ones(3)),
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_supported_is_refused_by_name(reason: str, tmp_path: Path) -> None:
    family, change = REFUSED[reason]
    model = saved(tmp_path, family, change)
    with pytest.raises(UnsupportedModelError, match=reason):
        load_mtp(str(tmp_path), model)


def test_a_family_without_heads_is_refused_by_name(tmp_path: Path) -> None:
    model = tiny_model()
    model.config.save_pretrained(tmp_path)
    save_file({"lm_head.weight": torch.ones(1)}, tmp_path / "model.safetensors")
    assert not has_unused_head(str(tmp_path), LoadedModel(model))
    with pytest.raises(UnsupportedModelError, match="no MTP heads of llama are known"):
        load_mtp(str(tmp_path), LoadedModel(model))
