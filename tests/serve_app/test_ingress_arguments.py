"""The arguments that `serve.yaml` may have, and what becomes of them."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from deployments.ingress.settings import IngressSettings
from deployments.router.presets.strict_options import StrictOptions
from serve_app.ingress_arguments import IngressArguments, LlamaArguments, OpenAIArguments
from serve_app.router_arguments import DEMO_MODEL, DEMO_NAME, SEEING_DEMO_NAME, RouterArguments
from serve_app.web_arguments import WebArguments

CONFIG = yaml.safe_load((DEMO_MODEL.parents[1] / "serve.yaml").read_text())
BUILDERS: dict[str, type[StrictOptions]] = {
    "serve_app:router": RouterArguments,
    "serve_app:openai": OpenAIArguments,
    "serve_app:anthropic": IngressArguments,
    "serve_app:llama": LlamaArguments,
    "serve_app:web": WebArguments,
}


def test_the_shipped_applications_are_those_that_there_are_and_their_arguments_are_known() -> None:
    said = {app["import_path"]: app.get("args", {}) for app in CONFIG["applications"]}
    assert said.keys() == BUILDERS.keys()
    for path, arguments in said.items():
        BUILDERS[path].model_validate(arguments)
    router = RouterArguments.model_validate(said["serve_app:router"])
    served = [preset.settings.name for preset in router.checked_sources().read()]
    assert served == [DEMO_NAME, SEEING_DEMO_NAME]


@pytest.mark.parametrize(
    ("said", "help"),
    [
        ({"api_key": "abc"}, r"unknown setting api_key; did you mean api_keys\?"),
        ({"api_keys": "abc"}, "api_keys: must be a list"),
    ],
)
def test_a_setting_that_is_said_wrongly_is_told_of_the_right_one(
    said: dict[str, object], help: str
) -> None:
    with pytest.raises(ValidationError, match=help) as wrong:
        IngressArguments.model_validate(said)
    assert "abc" not in str(wrong.value)


def test_the_server_listens_on_loopback() -> None:
    assert CONFIG["http_options"]["host"] == "127.0.0.1"


def test_every_setting_of_an_ingress_can_be_set(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    chosen = {
        "keep_alive_s": 1.5,
        "max_body_bytes": 1000,
        "max_inflight_body_bytes": 2000,
        "body_timeout_s": 2.5,
        "request_timeout_s": 3.5,
        "api_keys": ["key"],
        "load_timeout_s": 4.5,
        "max_inflight": 7,
        "stop_timeout_s": 5.5,
        "encryption_key_file": str(key),
        "cors_origins": ["https://chat.example", "http://localhost:3000", "*"],
    }
    settings = IngressArguments.model_validate(chosen).ingress_settings()
    assert settings == IngressSettings(
        keep_alive_s=1.5,
        body_limit=1000,
        body_budget=2000,
        body_timeout_s=2.5,
        request_timeout_s=3.5,
        api_keys=("key",),
        load_timeout_s=4.5,
        max_inflight=7,
        stop_timeout_s=5.5,
        encryption_key=b"k" * 32,
        cors_origins=("https://chat.example", "http://localhost:3000", "*"),
    )


@pytest.mark.parametrize(
    "origin", ["https://chat.example/", "chat.example", "HTTPS://x", "null", ""]
)
def test_an_origin_that_no_browser_sends_is_an_error(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        IngressArguments.model_validate({"cors_origins": [origin]})


def test_a_body_that_no_client_could_send_is_an_error() -> None:
    with pytest.raises(ValidationError, match="max_inflight_body_bytes: must be at least 9/8"):
        IngressArguments.model_validate({"max_body_bytes": 900, "max_inflight_body_bytes": 1000})
