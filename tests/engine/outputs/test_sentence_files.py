"""The files that sentence-transformers writes beside a model are read, or refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.outputs import LabelParams, ModelTask, Pooling, PoolParams
from deployments.engine.engine import InferenceEngine
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.loader import load_model, load_tokenizer
from tests.checkpoints import byte_tokenizer
from tests.encoders import hidden_states, tiny_classifier, tiny_embedder
from tests.engine.outputs.drive import EXACT, answers, ask
from tests.models import tiny_model

PREFIX = "sentence_transformers.models."
MEAN = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}


def write(path: Path, name: str, content: object) -> None:
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text(json.dumps(content))


def write_modules(path: Path, *types: str) -> None:
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": PREFIX + kind}
        for n, kind in enumerate(types)
    ]
    write(path, "modules.json", modules)


def save_bert(path: Path) -> PreTrainedModel:
    """One that reads bytes; without what pools behind its layers."""
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return model


def test_all_modules_are_applied_one_after_the_other(tmp_path: Path) -> None:
    model = save_bert(tmp_path)
    write_modules(tmp_path, "Transformer", "Pooling", "Dense", "Normalize")
    write(tmp_path, "1_Pooling/config.json", MEAN)
    dense = torch.nn.Linear(32, 12)
    named = "torch.nn.modules.activation.Tanh"
    sizes = {"in_features": 32, "out_features": 12, "bias": True, "activation_function": named}
    write(tmp_path, "2_Dense/config.json", sizes)
    weights = {f"linear.{name}": tensor for name, tensor in dense.state_dict().items()}
    save_file(weights, tmp_path / "2_Dense" / "model.safetensors")
    prompts = {"prompts": {"query": "q: ", "text": ""}, "default_prompt_name": "query"}
    write(tmp_path, "config_sentence_transformers.json", prompts)
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 20})
    with InferenceEngine(str(tmp_path)) as engine, torch.inference_mode():
        kinds = engine.card.answers
        assert (kinds.task, kinds.pooling, kinds.embedding_size) == ("embed", "mean", 12)
        assert (kinds.normalizes, kinds.max_input_tokens) == (True, 20)
        for name, text in (("", b"q: abc"), ("text", b"abc")):
            mean = hidden_states(model, engine_ids(engine, text.decode())).mean(0)
            whole = dense(torch.from_numpy(mean)).tanh().numpy()
            found = engine.embed(["abc", "abcdef"], prompt_name=name)[0]
            np.testing.assert_allclose(found, whole / np.linalg.norm(whole), rtol=1e-5, atol=1e-5)
            [short] = engine.embed("abc", params=PoolParams(dimensions=5), prompt_name=name)
            cut = whole[:5] / np.linalg.norm(whole[:5])
            np.testing.assert_allclose(short, cut, rtol=1e-5, atol=1e-5)
        with pytest.raises(Refused, match="has 30 tokens; this model takes 20") as refused:
            engine.embed("x" * 30, prompt_name="text")
        assert refused.value.error.kind is ErrorKind.CONTEXT_LENGTH


def engine_ids(engine: InferenceEngine, text: str) -> tuple[int, ...]:
    return engine.request(text).prompt_ids


@pytest.mark.parametrize(
    ("types", "pooling", "reason"),
    [
        (("Transformer", "Pooling", "LSTM"), MEAN, "has a LSTM, which is not known"),
        (("Transformer", "Pooling"), {"pooling_mode_max_tokens": True}, "its pooling is max;"),
        (("Transformer", "Pooling"), MEAN | {"pooling_mode_cls_token": True}, "cls and mean"),
        (("Transformer", "Pooling"), MEAN | {"include_prompt": False}, "leaves out prompts"),
        (("Transformer", "Pooling", "Dense"), MEAN, "2_Dense/config.json is missing"),
    ],
)
def test_what_is_not_known_is_refused(
    tmp_path: Path, types: tuple[str, ...], pooling: dict[str, Any], reason: str
) -> None:
    save_bert(tmp_path)
    write_modules(tmp_path, *types)
    write(tmp_path, "1_Pooling/config.json", pooling)
    with pytest.raises(UnsupportedModelError, match=reason):
        load_model(str(tmp_path))


PLAIN_TOKENS = {
    "query_prefix": "",
    "document_prefix": "",
    "query_length": 32,
    "document_length": 180,
    "do_query_expansion": False,
    "attend_to_expansion_tokens": False,
    "skiplist_words": [],
}


def save_late_interaction(path: Path, config: object, **dense: object) -> None:
    save_bert(path)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": PREFIX + "Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    write(path, "modules.json", modules)
    write(path, "config_sentence_transformers.json", config)
    sizes = {"in_features": 32, "out_features": 32, "bias": False, **dense}
    write(path, "1_Dense/config.json", sizes)
    save_file({"linear.weight": torch.eye(32)}, path / "1_Dense" / "model.safetensors")


def test_late_interaction_has_a_vector_for_each_token(tmp_path: Path) -> None:
    save_late_interaction(tmp_path, PLAIN_TOKENS)
    assert load_model(str(tmp_path)).outputs.kinds.pooling is Pooling.TOKEN


@pytest.mark.parametrize(
    ("config", "dense", "reason"),
    [
        ({"query_prefix": "[Q] "}, {}, r'query_prefix is "\[Q\] "'),
        ({"document_prefix": "d: "}, {}, 'document_prefix is "d: "'),
        ({"do_query_expansion": True}, {}, "do_query_expansion is true"),
        ({"do_query_expansion": None}, {}, "do_query_expansion is true"),  # its default
        ({"skiplist_words": ["!", "."]}, {}, "skiplist_words"),
        ({}, {"use_residual": True}, "use_residual"),
    ],
)
def test_what_else_late_interaction_does_is_refused(
    tmp_path: Path, config: dict[str, Any], dense: dict[str, Any], reason: str
) -> None:
    save_late_interaction(tmp_path, PLAIN_TOKENS | config, **dense)
    with pytest.raises(UnsupportedModelError, match=reason):
        load_model(str(tmp_path))


def test_a_score_needs_a_token_for_no_as_well(tmp_path: Path) -> None:
    save_bert(tmp_path)
    write_modules(tmp_path, "Transformer", "LogitScore")
    write(tmp_path, "1_LogitScore/config.json", {"true_token_id": 5})
    with pytest.raises(UnsupportedModelError, match="no token that stands for no"):
        load_model(str(tmp_path))


def save_judge(path: Path, *words: str) -> tuple[PreTrainedModel, list[int]]:
    """A generator, and the ids of words that are single tokens of it."""
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([*words])
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return model, tokenizer.convert_tokens_to_ids([*words])


@pytest.mark.parametrize("is_named", [True, False], ids=["by its files", "by its tokenizer"])
def test_a_generator_scores_by_its_yes_and_no(tmp_path: Path, is_named: bool) -> None:
    model, (yes, no) = save_judge(tmp_path, "yes", "no")
    if is_named:
        write_modules(tmp_path, "Transformer", "LogitScore")
        write(tmp_path, "1_LogitScore/config.json", {"true_token_id": yes, "false_token_id": no})
    loaded = load_model(str(tmp_path), task=None if is_named else ModelTask.SCORE)
    with InferenceEngine(loaded, load_tokenizer(str(tmp_path))) as engine:
        kinds = engine.card.answers
        assert (kinds.task, kinds.can_generate, kinds.labels) == (ModelTask.SCORE, True, ())
        assert kinds.score_token_ids == (yes, no)
        prompt = engine_ids(engine, "Is it?")
        [found] = answers(engine.core, ask("r", prompt, LabelParams(token_ids=(yes, no))))
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt])).logits[0, -1]
    np.testing.assert_allclose(found[0], logits.log_softmax(-1)[[yes, no]].numpy(), **EXACT)


def test_what_has_nothing_to_score_with_is_refused(tmp_path: Path) -> None:
    save_judge(tmp_path / "yes", "yes")
    save_bert(tmp_path / "bert")
    for name in ("yes", "bert"):
        with pytest.raises(UnsupportedModelError, match="it can't score"):
            load_model(str(tmp_path / name), task=ModelTask.SCORE)


@pytest.mark.parametrize(
    ("model", "task", "pooling"),
    [
        (lambda: tiny_embedder("mpnet"), ModelTask.EMBED, Pooling.MEAN),
        (lambda: tiny_embedder("qwen3"), ModelTask.EMBED, Pooling.LAST),
        (lambda: tiny_model("qwen3"), ModelTask.GENERATE, None),
        (lambda: tiny_classifier("bert", 1), ModelTask.SCORE, None),
        (lambda: tiny_classifier("qwen3", 3), ModelTask.CLASSIFY, None),
    ],
)
def test_a_models_files_say_what_it_is_for(
    tmp_path: Path, model: Any, task: ModelTask, pooling: Pooling | None
) -> None:
    model().save_pretrained(tmp_path)
    kinds = load_model(str(tmp_path), dtype=torch.float32).outputs.kinds
    assert (kinds.task, kinds.pooling) == (task, pooling)


def test_a_setting_makes_an_embedder_of_a_model_that_talks(tmp_path: Path) -> None:
    tiny_model("qwen3").save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), task=ModelTask.EMBED, pooling=Pooling.MEAN)
    kinds = loaded.outputs.kinds
    assert (kinds.can_generate, kinds.pooling) == (False, Pooling.MEAN)
