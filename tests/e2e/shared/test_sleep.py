"""A model that nobody asks gives its memory back, and answers as before when somebody does."""

from pathlib import Path

import pytest

from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.models import BIG_MB

pytestmark = THROUGHPUT


def resident_mb(server: Server) -> float:
    [pid] = server.replicas("MantaModel", "model-big")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def state(server: Server) -> str:
    listed = server.http.get("/models").json()["data"]
    value: str = next(entry["status"]["value"] for entry in listed if entry["id"] == "big")
    return value


def ask(server: Server) -> object:
    body = {"model": "big", "prompt": "Once upon", "max_tokens": 24, "temperature": 0.8, "seed": 5}
    answer = server.http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def test_it_falls_asleep_looks_do_not_wake_it_and_a_request_does(server: Server) -> None:
    said = ask(server)
    awake = resident_mb(server)
    while state(server) != "loaded":  # a machine that is busy took longer than SLEEP_S for a look
        assert ask(server) == said
        awake = max(awake, resident_mb(server))
    server.eventually(lambda: state(server) == "sleeping")
    # It is told from the moment it begins to fall asleep.
    server.eventually(lambda: awake - resident_mb(server) > 0.8 * BIG_MB)
    asleep = resident_mb(server)
    print(f"resident: {awake:.0f} MB awake, {asleep:.0f} MB asleep")
    for path in (
        "/health",
        "/props?model=big",
        "/slots?model=big",
        "/models",
        "/metrics",
        "/stats",
        "/v1/models",
    ):
        assert server.http.get(path).status_code == 200, path
    assert server.http.get("/props?model=big").json()["is_sleeping"] is True
    assert state(server) == "sleeping"
    assert resident_mb(server) < asleep + 0.2 * BIG_MB

    def is_awake() -> bool:
        """Asks too: where a look takes long it falls asleep again before it."""
        return ask(server) == said and resident_mb(server) > asleep + 0.8 * BIG_MB

    def is_said_to_be_awake() -> bool:
        return ask(server) == said and state(server) == "loaded"

    server.eventually(is_awake)
    server.eventually(is_said_to_be_awake)


@pytest.mark.exhaustive  # tests/model/test_failed_wakes.py says it of the replica
def test_a_model_whose_folder_is_gone_while_it_sleeps_is_failed_until_it_is_back(
    server: Server, presets: Path
) -> None:
    def status() -> dict[str, str]:
        found: dict[str, str] = server.http.get("/v1/models/big").json()["status"]
        return found

    def refusal() -> str:
        body = {"model": "big", "prompt": "Once", "max_tokens": 4}
        refused = server.http.post("/v1/completions", json=body)
        # Behind HAProxy an answer that takes long has begun before.
        assert refused.status_code in (503, 200), refused.text
        assert refused.json()["error"]["code"] == "service_unavailable"
        message: str = refused.json()["error"]["message"]
        return message

    said = ask(server)
    folder = presets.with_name("big")
    server.eventually(lambda: status()["state"] == "sleeping")
    away = folder.rename(folder.with_name("away"))
    assert f"the folder {folder} is gone" in refusal()
    assert status()["state"] == "failed"
    assert f"the folder {folder} is gone" in status()["message"]
    assert status()["message"] in refusal()
    away.rename(folder)
    server.eventually(lambda: status()["state"] != "failed")
    assert ask(server) == said
