"""A model is served exactly as its files have it, or refused with one line that says why."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BertConfig,
    Idefics2Config,
    PaliGemmaConfig,
    PretrainedConfig,
)

from deployments.contract.outputs import ModelTask
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.checks import check_computable_at_once, check_supported
from deployments.engine.loading.loader import load_model, load_tokenizer
from deployments.engine.loading.model_tasks import auto_class, task_of
from tests.checkpoints import byte_tokenizer, save_checkpoint
from tests.engine.drive import engine, request, roomy
from tests.families.tiny import tiny_model as tiny_family
from tests.models import CONFIGS, tiny_model

Tensors = dict[str, Tensor]
# The values of the 16 codes of MXFP4. The first bit is the sign.
FP4_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
BLOCK_SIZE = 32  # weights that share a scale


def rewrite_weights(folder: Path, change: Callable[[Tensors], Tensors]) -> str:
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    return str(folder)


def change_config(folder: Path, **fields: object) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return str(folder)


def without(part: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensors[name] for name in tensors if part not in name}


def quantize_as_modelopt(tensors: Tensors) -> Tensors:
    linears = [name for name in tensors if "proj" in name]
    narrow = {name: tensors[name].to(torch.float8_e4m3fn) for name in linears}
    return tensors | narrow | {f"{name}_scale": torch.ones(1) for name in linears}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("layers.1."), r"lack weights: model\.layers\.1\..* and 6 more"),
        (without("lm_head"), r"lack weights: lm_head\.weight$"),
        (quantize_as_modelopt, r"quantized in a way .*proj\.weight_scale.* name the original"),
    ],
)
def test_incomplete_or_quantized_weights_are_refused(
    tmp_path: Path, change: Callable[[Tensors], Tensors], reason: str
) -> None:
    path = rewrite_weights(save_checkpoint(tmp_path), change)
    with pytest.raises(UnsupportedModelError, match=reason):
        load_model(path)


def test_tied_weights_may_be_missing_and_unknown_ones_are_ignored(tmp_path: Path) -> None:
    save_checkpoint(tmp_path)
    change_config(tmp_path, tie_word_embeddings=True)
    path = rewrite_weights(
        tmp_path, lambda tensors: without("lm_head")(tensors) | {"x": torch.ones(1)}
    )
    model = load_model(path).model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_a_shape_that_the_config_contradicts_is_refused_with_both_shapes(tmp_path: Path) -> None:
    path = change_config(save_checkpoint(tmp_path), intermediate_size=96)
    reason = rf"^{path}/model\.safetensors: .*down_proj\.weight is \[64, 128\], not \[64, 96\]"
    with pytest.raises(UnsupportedModelError, match=reason):
        load_model(path)


@pytest.mark.parametrize(
    "method", ["awq", "gptq", "compressed-tensors", "modelopt", "fp8", "bitsandbytes", "mxfp4"]
)
def test_a_config_that_says_quantized_of_files_that_are_not_is_refused(
    tmp_path: Path, method: str
) -> None:
    path = change_config(save_checkpoint(tmp_path), quantization_config={"quant_method": method})
    with pytest.raises(UnsupportedModelError, match=rf"quantized \({method}\), and none in its"):
        load_model(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "pointer of git-lfs"),
        (b"\x10\0\0\0\0\0\0\0{", "broken or not whole"),
    ],
)
def test_a_truncated_file_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = save_checkpoint(tmp_path)
    (path / "model.safetensors").write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=rf"/model\.safetensors is .*{reason}"):
        load_model(str(path))


@pytest.mark.parametrize("content", ["", '{"eos_token_id": [1', "[]"])
def test_a_generation_config_that_can_not_be_read_is_named(tmp_path: Path, content: str) -> None:
    (save_checkpoint(tmp_path) / "generation_config.json").write_text(content)
    with pytest.raises(UnsupportedModelError, match=r"/generation_config\.json (can't|is no)"):
        load_model(str(tmp_path))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path, max_shard_size="20KB")
    (missing := sorted(tmp_path.glob("model-*"))[1]).unlink()
    with pytest.raises(UnsupportedModelError, match=f"{missing} is missing"):
        load_model(str(tmp_path))


def test_files_that_are_not_loaded_are_not_checked(tmp_path: Path) -> None:
    (save_checkpoint(tmp_path) / "consolidated.safetensors").write_text("another form of them")
    load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"model_type": "own", "auto_map": {"AutoConfig": "x.X"}},
            "own comes with code of its own",
        ),
        ({"model_type": "of-tomorrow"}, "of-tomorrow is no type of model that the installed"),
        ({"rms_norm_eps": "small"}, "llama can't be loaded: .*'small'"),
    ],
)
def test_an_unreadable_config_is_refused_in_one_line(
    tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    path = change_config(save_checkpoint(tmp_path), **fields)
    with pytest.raises(UnsupportedModelError, match=reason) as refused:
        load_model(path)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("own", "architecture", "known"),
    [
        ("kimi_k2", "DeepseekV3ForCausalLM", "deepseek_v3"),
        ("mimo", "MiMoForCausalLM", "qwen2"),
    ],
)
def test_a_type_that_transformers_has_by_another_name_is_served_by_that(
    tmp_path: Path, own: str, architecture: str, known: str
) -> None:
    model = tiny_family(known)
    model.save_pretrained(tmp_path)
    drafts = {"model.mtp_layers.0.input_proj.weight": torch.ones(4)}
    rewrite_weights(tmp_path, lambda tensors: tensors | drafts)
    path = change_config(
        tmp_path,
        model_type=own,
        architectures=[architecture],
        auto_map={"AutoModelForCausalLM": "x.X"},
        torch_dtype="auto",
    )
    with engine(model=model) as plain, engine(model=load_model(path)) as running:
        expected, found = (served.run(request("r", range(20)))[0] for served in (plain, running))
    assert found.token_ids == expected.token_ids
    path = change_config(tmp_path, architectures=["AnotherForCausalLM"])
    with pytest.raises(UnsupportedModelError, match=f"^{own} comes with code of its own"):
        load_model(path)


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": "auto"},
        {"dtype": "bf16"},
        {"dtype": ["bfloat16"]},
        {"attn_implementation": "flash_attention_2"},
        {"_attn_implementation": "flash_attention_2"},
    ],
)
def test_what_is_decided_elsewhere_is_left_alone(tmp_path: Path, fields: dict[str, object]) -> None:
    load_model(change_config(save_checkpoint(tmp_path), **fields))


@pytest.mark.parametrize(
    ("architecture", "what"),
    [
        ("BertForTokenClassification", "labels each token"),
        ("RobertaForQuestionAnswering", "finds the answer"),
        ("Qwen2ForRewardModel", "rewards answers"),
        ("Qwen2ForProcessRewardModel", "rewards answers"),
    ],
)
def test_heads_that_are_not_served_are_refused_by_what_they_do(
    architecture: str, what: str
) -> None:
    config = BertConfig(architectures=[architecture])
    with pytest.raises(UnsupportedModelError, match=f"^{architecture} {what}"):
        auto_class(config, task_of(config, None))
    assert auto_class(config, ModelTask.EMBED)


def test_a_known_architecture_is_served_without_its_custom_code(tmp_path: Path) -> None:
    path = change_config(save_checkpoint(tmp_path), auto_map={"AutoModelForCausalLM": "x.X"})
    load_model(path)


@pytest.mark.parametrize("config", [Idefics2Config, PaliGemmaConfig])
def test_multimodal_models_are_refused_by_name(
    tmp_path: Path, config: type[PretrainedConfig]
) -> None:
    config().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=f"^{config.model_type} is no causal language"):
        load_model(str(tmp_path))


def test_unsupported_layer_types_are_refused_by_name() -> None:
    config = CONFIGS["qwen3"]()
    config.layer_types = ["full_attention", "compressed_sparse_attention", "full_attention"]
    with pytest.raises(UnsupportedModelError, match="compressed_sparse_attention"):
        check_supported(config)


def of_chunks() -> PretrainedConfig:
    config = CONFIGS["qwen3"]()
    config.layer_types = ["full_attention", "chunked_attention", "full_attention"]
    return config


def by_an_index() -> PretrainedConfig:
    config = CONFIGS["llama"]()
    config.index_topk = 8
    return config


@pytest.mark.parametrize(
    ("config", "reason"),
    [(of_chunks(), "chunked_attention"), (by_an_index(), "chooses by an index")],
)
def test_what_our_attention_can_not_attend_to_is_left_to_transformers(
    config: PretrainedConfig, reason: str
) -> None:
    check_supported(config)
    with pytest.raises(UnsupportedModelError, match=reason):
        check_computable_at_once(config)


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    for file in save_checkpoint(tmp_path).glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UnsupportedModelError, match="has no tokenizer"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizer_of_sentencepiece_alone_is_read_as_it_reads(tmp_path: Path) -> None:
    for file in save_checkpoint(tmp_path).glob("tokenizer*"):
        file.unlink()
    text = [f"the quick brown fox {n} jumps over the lazy dog" for n in range(200)]
    with (tmp_path / "tokenizer.model").open("wb") as model_file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text), model_writer=model_file, vocab_size=50, minloglevel=2
        )
    tokenizer = load_tokenizer(str(tmp_path))
    piece = sentencepiece.SentencePieceProcessor(str(tmp_path / "tokenizer.model"))
    ids = tokenizer(text[7], add_special_tokens=False).input_ids
    assert ids == piece.encode(text[7])
    assert tokenizer.decode(ids) == text[7]


def test_a_tokenizer_with_code_of_its_own_needs_a_tokenizer_json(tmp_path: Path) -> None:
    file = save_checkpoint(tmp_path) / "tokenizer_config.json"
    own = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["x.Own", None]}}
    file.write_text(json.dumps(json.loads(file.read_text()) | own))
    assert load_tokenizer(str(tmp_path)).encode("a") == [*byte_tokenizer().encode("a")]
    (tmp_path / "tokenizer.json").rename(tmp_path / "tiktoken.model")
    with pytest.raises(UnsupportedModelError, match=r"Own comes with code .* a tokenizer\.json$"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "the tokenizer of {path} can't be loaded"),
        ("version https://git-lfs.github.com", r"{path}/tokenizer\.json is a pointer of git-lfs"),
    ],
)
def test_an_unreadable_tokenizer_is_refused_in_one_line(
    tmp_path: Path, content: str, said: str
) -> None:
    (save_checkpoint(tmp_path) / "tokenizer.json").write_text(content)
    with pytest.raises(UnsupportedModelError, match=said.format(path=tmp_path)):
        load_tokenizer(str(tmp_path))


def to_mxfp4(tensors: Tensors) -> Tensors:
    """Replaces the experts of a gpt-oss by random MXFP4 blocks, as OpenAI publishes them."""
    replaced = {}
    for name, weight in tensors.items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            replaced[name] = weight
            continue
        experts, n_in, n_out = weight.shape
        shape = (experts, n_out, n_in // BLOCK_SIZE)
        replaced[f"{name}_blocks"] = torch.randint(
            256, (*shape, BLOCK_SIZE // 2), dtype=torch.uint8
        )
        replaced[f"{name}_scales"] = torch.randint(120, 128, shape, dtype=torch.uint8)
    return replaced


def from_mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    """Dequantizes an expert weight to [experts, in, out]."""
    values = FP4_VALUES[torch.stack([blocks & 15, blocks >> 4], -1).long()].flatten(-2)
    return (values * (scales.float() - 127).exp2()[..., None]).flatten(-2).transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gpt_oss_is_loaded_from_mxfp4(tmp_path: Path, dtype: torch.dtype) -> None:
    tiny_model("gpt_oss").save_pretrained(tmp_path)
    rewrite_weights(tmp_path, to_mxfp4)
    packed = load_file(tmp_path / "model.safetensors")
    path = change_config(tmp_path, quantization_config={"quant_method": "mxfp4"})
    model = load_model(path, dtype=dtype, is_whole=False).model
    for layer in range(3):
        for name in ("gate_up_proj", "down_proj"):
            name = f"model.layers.{layer}.mlp.experts.{name}"
            expected = from_mxfp4(packed[f"{name}_blocks"], packed[f"{name}_scales"])
            assert torch.equal(model.get_parameter(name), expected.to(dtype))
    with engine(model=load_model(path, dtype=dtype), limits=roomy()) as running:
        assert len(running.run(request("r", range(20)))[0].token_ids) == 16
