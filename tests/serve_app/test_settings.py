"""What `serve.yaml` may say, and what becomes of it."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from deployments.engine.limits import EngineLimits
from deployments.ingress.settings import IngressSettings
from serve_app.settings import DEMO_MODEL, IngressArguments, RouterArguments

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


def test_every_setting_of_an_ingress_can_be_set() -> None:
    chosen = {
        "keep_alive_s": 1.5,
        "max_body_bytes": 1000,
        "body_timeout_s": 2.5,
        "request_timeout_s": 3.5,
        "api_keys": ["key"],
        "cors_origins": ["https://chat.example", "http://localhost:3000", "*"],
    }
    settings = IngressArguments.model_validate(chosen).ingress_settings()
    assert settings == IngressSettings(
        keep_alive_s=1.5,
        body_limit=1000,
        body_timeout_s=2.5,
        request_timeout_s=3.5,
        api_keys=("key",),
        cors_origins=("https://chat.example", "http://localhost:3000", "*"),
    )


@pytest.mark.parametrize(
    "origin", ["https://chat.example/", "chat.example", "HTTPS://x", "null", ""]
)
def test_an_origin_that_no_browser_sends_is_an_error(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        IngressArguments.model_validate({"cors_origins": [origin]})
