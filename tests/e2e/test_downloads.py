"""A model comes from a hub to a running server, answers, and goes again: by HTTP and by command."""

import json
from functools import partial
from pathlib import Path

import pytest

from deployments.router.downloads.downloads import PARTIAL
from tests.e2e.server import Server
from tests.e2e.shared.demo.test_command import typed
from tests.engine.loading.gguf.test_served import written
from tests.router.downloads.hub import Hub, serving

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(600)]

NAME, PACKED = "org/small", "org/packed:Q8_0"
PROMPT = {"model": NAME, "prompt": "abc", "max_tokens": 4}


def test_a_model_is_downloaded_answers_and_is_deleted(checkpoint: Path, tmp_path: Path) -> None:
    packed = {"m-Q8_0.gguf": written("llama", tmp_path).read_bytes(), "m-Q4_0.gguf": b""}
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.is_file()}
    folder = tmp_path / "downloads"
    router = {"model": str(checkpoint), "num_cpus": 0.5, "n_pages": 160, "name": "own"}
    router |= {"downloads_dir": str(folder)}
    with (
        serving(Hub({NAME: files, "org/packed": packed})) as hub,
        Server(tmp_path, router, {"HF_ENDPOINT": hub.endpoint}) as server,
    ):
        refused = server.http.post("/models", json={"model": "own"})
        assert (
            refused.status_code,
            server.http.post("/v1/completions", json=PROMPT).status_code,
        ) == (400, 404)
        for name, comes in ((NAME, download), (PACKED, pull)):
            comes(server, name)
            assert listed(server)[name] == ("cache", True)
            answer = server.http.post("/v1/completions", json={**PROMPT, "model": name})
            assert answer.json()["usage"]["completion_tokens"] == 4
            assert server.http.delete("/models?model=own").status_code == 400
            typed(server, "rm", name)
            server.eventually(partial(is_gone, server, name))
            assert not [path for path in folder.glob("*") if path.name != PARTIAL]
        assert "own" in listed(server)


def download(server: Server, name: str) -> None:
    with server.http.stream("GET", "/models/sse") as events:
        assert server.http.post("/models", json={"model": name}).json() == {"success": True}
        for line in events.iter_lines():
            told = json.loads(line.removeprefix("data: ")) if line.startswith("data") else {}
            assert told.get("event") != "download_failed", told
            if told.get("event") == "download_finished":
                return


def pull(server: Server, name: str) -> None:
    assert typed(server, "pull", name) == f"{name} is there: `manta run {name}`\n"
    assert name in typed(server, "ls")


def is_gone(server: Server, name: str) -> bool:
    return name not in listed(server)


def listed(server: Server) -> dict[str, tuple[str, bool]]:
    models = server.http.get("/models").json()["data"]
    return {entry["id"]: (entry["source"], entry["can_remove"]) for entry in models}
