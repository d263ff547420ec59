"""A model's files tell which inputs it takes, as its card does once it is loaded."""

import json
from pathlib import Path

import pytest

from deployments.model.settings import ModelSettings
from deployments.router.lifecycle.modalities import input_modalities
from serve_app.router_arguments import DEMO_MODEL, SEEING_DEMO_MODEL

SEES, HEARS = {"vision_config": {"depth": 1}}, {"audio_config": {"depth": 1}}
BOTH = {**SEES, **HEARS}


def found(path: object, tensor_parallel: int = 1) -> tuple[str, ...] | None:
    settings = ModelSettings(name="m", path=str(path), tensor_parallel=tensor_parallel)
    return input_modalities(settings)


def save(folder: Path, config: object, processor: object = None) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def test_the_demos_say_what_they_take() -> None:
    assert found(DEMO_MODEL) == ("text",)
    assert found(SEEING_DEMO_MODEL) == ("text", "image")


@pytest.mark.parametrize(
    ("config", "processor", "expected"),
    [
        ({"model_type": "gemma3n", **BOTH}, "Gemma3nProcessor", ("text", "image", "audio")),
        # Its sounds are not encoded here.
        ({"model_type": "gemma4", **BOTH}, "Gemma4Processor", ("text", "image")),
        ({"model_type": "qwen2_audio", **HEARS}, "Qwen2AudioProcessor", ("text", "audio")),
        # The files of some name no processor: most types have their own.
        ({"model_type": "qwen3_vl", **SEES}, "", ("text", "image")),
        ({"model_type": "mistral3", **SEES}, "", None),
        ({"model_type": "mllama", **SEES}, "MllamaProcessor", ("text",)),
        ({"model_type": "llava", **SEES}, None, ("text",)),
        ({"architectures": ["Gemma3ForCausalLM"], **SEES}, "Gemma3Processor", ("text",)),
        ({"architectures": ["WhisperForConditionalGeneration"]}, "WhisperProcessor", ("audio",)),
        ({"model_type": "bert"}, None, ("text",)),
        (["no", "config"], None, None),
    ],
)
def test_what_files_say(
    tmp_path: Path, config: object, processor: str | None, expected: tuple[str, ...] | None
) -> None:
    fields = None if processor is None else {"processor_class": processor or None}
    assert found(save(tmp_path, config, fields)) == expected


def test_a_gguf_file_takes_text(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"not read for this")
    assert found(tmp_path / "m.gguf") == ("text",)
    assert found(tmp_path / "none.gguf") is None
    assert found("owner/name:Q4_K_M") is None


def test_ranks_read_text_only(tmp_path: Path) -> None:
    folder = save(tmp_path, SEES, {"processor_class": "LlavaProcessor"})
    assert found(folder, tensor_parallel=2) == ("text",)


def test_nobody_knows_it_before_the_files_are_here() -> None:
    assert found("owner/not-downloaded") is None
