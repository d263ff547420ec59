"""How a model draws where a request says nothing: by its settings, and then by its own files."""

import json
import logging
import re
from pathlib import Path

import pytest

from deployments.contract.requests import SamplingParams
from deployments.model.model_source import ModelSource
from deployments.router.presets.options import ModelOptions
from tests.checkpoints import save_checkpoint


@pytest.mark.parametrize(
    ("said", "drawn"),
    [
        ({}, SamplingParams(temperature=0.25, top_k=9)),
        ({"temperature": 0.0, "min_p": 0.5}, SamplingParams(temperature=0, top_k=9, min_p=0.5)),
        ({"top_k": 0, "typical_p": 0.5}, SamplingParams(temperature=0.25, typical_p=0.5)),
        (
            {"repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 0.5},
            SamplingParams(
                temperature=0.25,
                top_k=9,
                repetition_penalty=1.5,
                presence_penalty=-1,
                frequency_penalty=0.5,
            ),
        ),
    ],
)
def test_settings_come_before_the_models_files(
    tmp_path: Path, said: dict[str, float], drawn: SamplingParams
) -> None:
    path = save_checkpoint(tmp_path / "model")
    (path / "generation_config.json").write_text(json.dumps({"temperature": 0.25, "top_k": 9}))
    options = ModelOptions.model_validate(
        {"model": str(path), "dtype": "float32", "n_pages": 16, "context_length": 64, **said}
    )
    source = ModelSource(options.preset("m", source="argument").settings, lambda *_: None)
    source.start().shutdown()
    assert source.card.sampling == drawn


def test_a_start_says_in_a_few_lines_what_it_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ModelOptions(
        model=str(save_checkpoint(tmp_path / "model")),
        dtype="float32",
        n_pages=1024,
        context_length=64,
        num_cpus=1,
    )
    source = ModelSource(options.preset("m", source="argument").settings, lambda *_: None)
    with caplog.at_level(logging.INFO):
        source.start().shutdown()
    told = [line for line in caplog.messages if line.startswith("m: ")]
    assert told[0] == "m: LlamaForCausalLM in float32 on cpu, 0.00 GiB of weights"
    assert "room for 16,384 tokens in 1,024 pages of 16 (" in told[1]
    assert "64 tokens in a sequence" in told[1]
    assert re.fullmatch(r"m: ready after \d+\.\d s", told[2])
