"""What `serve.yaml` may say, and what becomes of it."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from deployments.engine.limits import EngineLimits
from serve_app.settings import DEMO_MODEL, RouterArguments

CONFIG = yaml.safe_load((DEMO_MODEL.parents[1] / "serve.yaml").read_text())


def test_without_arguments_the_demo_model_is_served_with_the_engines_own_limits() -> None:
    settings = RouterArguments().model_settings()
    assert (settings.name, settings.path) == ("manta-demo", str(DEMO_MODEL))
    assert settings.limits == EngineLimits()


def test_every_limit_of_the_engine_can_be_set() -> None:
    chosen = {
        "page_size": 8,
        "n_pages": 100,
        "kv_gib": 2.5,
        "context_length": 512,
        "max_running": 3,
        "max_batch_tokens": 64,
        "max_waiting": 5,
        "max_stuck_s": 9.0,
    }
    limits = RouterArguments.model_validate(chosen).model_settings().limits
    assert limits == EngineLimits(**chosen)  # type: ignore[arg-type]


def test_a_directory_is_known_by_its_name_and_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    settings = RouterArguments(model="small").model_settings()
    assert (settings.name, settings.path) == ("small", str(tmp_path / "small"))


def test_a_hub_id_is_its_own_name() -> None:
    settings = RouterArguments(model="Qwen/Qwen3-0.6B").model_settings()
    assert (settings.name, settings.path) == ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B")
    assert settings.application == "model-Qwen_Qwen3-0.6B"


@pytest.mark.parametrize("model", ["./nowhere", "/nowhere", "~/nowhere"])
def test_a_directory_that_is_not_there_is_an_error(model: str) -> None:
    with pytest.raises(ValueError, match="there is no directory"):
        RouterArguments(model=model).model_settings()


def test_a_directory_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json"):
        RouterArguments(model=str(tmp_path)).model_settings()


@pytest.mark.parametrize(
    "arguments", [{"modell": "x"}, {"num_replicas": 0}, {"dtype": "int3"}, {"page_size": -1}]
)
def test_a_setting_that_is_unknown_or_out_of_range_is_an_error(
    arguments: dict[str, object],
) -> None:
    with pytest.raises(ValidationError, match=next(iter(arguments))):
        RouterArguments.model_validate(arguments)


def test_the_server_listens_on_loopback() -> None:
    assert CONFIG["http_options"]["host"] == "127.0.0.1"
