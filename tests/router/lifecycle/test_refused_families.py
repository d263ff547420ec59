"""A family that the engine can't run is refused while it loads, and the whole reason is told."""

import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from ray.serve.schema import ApplicationStatus
from transformers import AutoModelForCausalLM

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.limits import EngineLimits
from deployments.ingress.routes.model_status import status_object
from deployments.model.model_source import ModelSource
from deployments.router.lifecycle.applications import DeployedApplication
from deployments.router.lifecycle.lifecycle import failure_suffix
from tests.checkpoints import byte_tokenizer
from tests.families.tiny import tiny_config
from tests.router.lifecycle.entries import entry, preset


def save(folder: Path, model_type: str) -> None:
    tokenizer, config = byte_tokenizer(), tiny_config(model_type)
    config.vocab_size = len(tokenizer)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("openai-gpt", "row by row: OpenAIGPTLMHeadModel takes no cache"),
        ("cpmant", "row by row: its cache holds something else than one key a token"),
    ],
)
def test_why_a_family_is_refused_is_in_the_log_and_in_the_list_of_models(
    model_type: str, reason: str, tmp_path: Path
) -> None:
    save(tmp_path, model_type)
    settings = replace(
        preset().settings, path=str(tmp_path), dtype="float32", limits=EngineLimits(n_pages=64)
    )
    with pytest.raises(UnsupportedModelError) as refused:
        ModelSource(settings, lambda phase, share: None).start()
    said = "".join(traceback.format_exception(refused.value))
    model = entry()
    model.start(0)
    model.observe(DeployedApplication(ApplicationStatus.DEPLOY_FAILED, said), 1)
    model.observe(None, 2)
    told = status_object(model.status)
    assert (told["state"], told["failed"]) == ("failed", True)
    message = str(told["message"])
    assert message.startswith(f"{model_type} has layers that neither attend nor keep a state")
    assert message.endswith(reason)
    assert message in failure_suffix(model)
