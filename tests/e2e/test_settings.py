"""An operator's settings, over HTTP: keys, CORS, tools, where models come from, how they run."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from deployments.engine.loading.loader import load_model
from tests.adapters import lora_tensors, save_adapter
from tests.e2e.server import Server

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(600)]
KEY = "sk-of-the-test"
PAGE = "https://page.example"
PRESETS = """
[*]
model = {model}
dtype = float32
num-cpus = 0.5
n-pages = 320
[plain]
load-on-startup = true
[adapted]
lora-scaled = {adapter}:2
[drafted]
draft-tokens = 4
[quantized]
quantization = int8
[split]
tensor-parallel = 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("set")


@pytest.fixture(scope="module")
def server(folder: Path, checkpoint: Path) -> Iterator[Server]:
    adapter = save_adapter(folder / "adapter", lora_tensors(load_model(str(checkpoint)).model))
    presets = folder / "models.ini"
    presets.write_text(PRESETS.format(model=checkpoint, adapter=adapter))
    shutil.copytree(checkpoint, folder / "models" / "listed")
    (folder / "files").mkdir()
    (folder / "files" / "notes.txt").write_text("one\nneedle\n")
    router = {
        "presets": str(presets),
        "models_dir": str(folder / "models"),
        "models_max": 0,
        "autoload": False,
    }
    common = {"api_keys": [KEY], "cors_origins": [PAGE]}
    arguments = {
        "openai": common,
        "anthropic": common,
        "llama": {**common, "tools_folder": str(folder / "files")},
    }
    made = Server(folder, router, arguments=arguments)
    made.http.headers["authorization"] = f"Bearer {KEY}"
    with made as running:
        yield running


def status(server: Server, model: str) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get(f"/v1/models/{model}").json()["status"]
    return found


def say(server: Server, model: str) -> str:
    """Loads a model as an operator does, returns its answer and unloads it again.

    `plain` is loaded from the start, and stays so.
    """
    body = {"model": model, "prompt": "abcabcabcabc", "max_tokens": 48, "temperature": 0}
    if model != "plain":
        refused = server.http.post("/v1/completions", json=body)
        assert refused.status_code == 503
        assert "is not loaded" in refused.json()["error"]["message"]
        server.http.post("/models/load", json={"model": model}).raise_for_status()
        server.eventually(lambda: status(server, model)["state"] in ("ready", "failed"))
        assert status(server, model)["state"] == "ready", status(server, model)
    answer = server.http.post("/v1/completions", json=body | {"ignore_eos": True})
    answer.raise_for_status()
    if model != "plain":
        server.http.post("/models/unload", json={"model": model}).raise_for_status()
        server.eventually(lambda: status(server, model)["state"] == "unloaded")
    text: str = answer.json()["choices"][0]["text"]
    return text


def test_a_key_opens_every_protocol_and_nothing_else_does(server: Server) -> None:
    asked: dict[str, Any] = {"model": "plain", "messages": [{"role": "user", "content": "Hi"}]}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as one:
        assert one.chat.completions.create(**asked, max_tokens=4).choices
    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as other:
        assert other.messages.create(**asked, max_tokens=4).content
    assert server.http.post("/completion", json={"prompt": "a", "n_predict": 4}).is_success
    wrong = {"authorization": "Bearer sk-another"}
    for path in ("/v1/chat/completions", "/v1/messages", "/completion", "/tools"):
        refused = server.http.post(path, json=asked, headers=wrong)
        assert refused.status_code == 401, path
        assert KEY not in refused.text
    assert server.http.get("/health", headers=wrong).status_code == 200


@pytest.mark.parametrize(("origin", "allowed"), [(PAGE, PAGE), ("https://elsewhere.example", None)])
def test_pages_of_the_named_origins_alone_may_ask(
    server: Server, origin: str, allowed: str | None
) -> None:
    asked = {"origin": origin, "access-control-request-method": "POST"}
    for path in ("/v1/chat/completions", "/v1/messages", "/completion"):
        answer = server.http.options(path, headers=asked)
        assert answer.headers.get("access-control-allow-origin") == allowed


def test_tools_work_in_their_folder(server: Server) -> None:
    def call(tool: str, **params: object) -> dict[str, Any]:
        answer = server.http.post("/tools", json={"tool": tool, "params": params})
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    assert call("grep_search", path=".", pattern="n.*le")["plain_text_response"] == (
        "notes.txt:2:needle"
    )
    call("write_file", path="new.txt", content="written")
    assert call("read_file", path="new.txt") == {"plain_text_response": "written"}
    assert "error" in call("read_file", path="../models.ini")


def test_models_are_served_as_they_are_set(server: Server) -> None:
    plain = say(server, "plain")
    assert say(server, "listed") == plain  # of the folder of models
    assert say(server, "drafted") == plain
    assert say(server, "split") == plain
    assert say(server, "adapted") != plain
    assert len(say(server, "quantized")) > 0
