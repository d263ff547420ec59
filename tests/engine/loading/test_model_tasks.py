"""A model is served for what its files say that it was made for."""

from pathlib import Path

import pytest
from transformers import BertConfig, GPT2Config, LlamaConfig, PretrainedConfig

from deployments.contract.outputs import ModelTask
from deployments.engine.loading.loader import load_model
from deployments.engine.loading.model_tasks import task_of
from tests.engine.drive import engine, request
from tests.families.tiny import tiny_model


@pytest.mark.parametrize(
    ("name", "config", "task"),
    [
        ("GPT2LMHeadModel", GPT2Config(), ModelTask.GENERATE),
        ("GPT2Model", GPT2Config(), ModelTask.EMBED),
        ("LlamaForCausalLM", LlamaConfig(), ModelTask.GENERATE),
        ("LlamaModel", LlamaConfig(), ModelTask.EMBED),
        ("BertLMHeadModel", BertConfig(is_decoder=True), ModelTask.GENERATE),
        ("BertLMHeadModel", BertConfig(), ModelTask.EMBED),
        ("BertForMaskedLM", BertConfig(), ModelTask.EMBED),
    ],
)
def test_the_name_of_its_class_says_what_a_model_is_made_for(
    name: str, config: PretrainedConfig, task: ModelTask
) -> None:
    config.architectures = [name]
    assert task_of(config, None) is task


def test_gpt_2_generates(tmp_path: Path) -> None:
    tiny_model("gpt2").save_pretrained(tmp_path)
    with engine(model=load_model(str(tmp_path))) as running:
        (outcome,) = running.run(request("r", range(20)))
    assert len(outcome.token_ids) == 16
