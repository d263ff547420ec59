"""A model that nobody asks gives its memory back, and answers as before when somebody does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from tests.checkpoints import byte_tokenizer
from tests.e2e.server import Server

SLEEP_S = 2
WEIGHTS_MB = 184


@pytest.fixture(scope="module")
def sleeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sleep")
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).float()
    assert sum(one.numel() * 4 for one in model.parameters()) > WEIGHTS_MB * 1e6 * 0.95
    model.save_pretrained(folder / "big")
    tokenizer.save_pretrained(folder / "big")
    arguments = {
        "model": str(folder / "big"),
        "name": "big",
        "dtype": "float32",
        "num_cpus": 1,
        "n_pages": 512,
        "sleep_idle_s": SLEEP_S,
    }
    with Server(folder, arguments) as running:
        yield running


def resident_mb(server: Server) -> float:
    [pid] = server.replicas("MantaModel")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def state(server: Server) -> str:
    listed = server.http.get("/models").json()["data"]
    value: str = listed[0]["status"]["value"]
    return value


def ask(server: Server) -> object:
    body = {"prompt": "Once upon", "max_tokens": 24, "temperature": 0.8, "seed": 5}
    answer = server.http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def test_it_falls_asleep_looks_do_not_wake_it_and_a_request_does(sleeper: Server) -> None:
    said = ask(sleeper)
    awake = resident_mb(sleeper)
    while state(sleeper) != "loaded":  # a machine that is busy took longer than SLEEP_S for a look
        assert ask(sleeper) == said
        awake = resident_mb(sleeper)
    sleeper.eventually(lambda: state(sleeper) == "sleeping")
    # It is told from the moment it begins to fall asleep.
    sleeper.eventually(lambda: awake - resident_mb(sleeper) > 0.8 * WEIGHTS_MB)
    asleep = resident_mb(sleeper)
    print(f"resident: {awake:.0f} MB awake, {asleep:.0f} MB asleep")
    for path in ("/health", "/props", "/models", "/metrics", "/stats", "/v1/models"):
        assert sleeper.http.get(path).status_code == 200, path
    assert sleeper.http.get("/props").json()["is_sleeping"] is True
    assert state(sleeper) == "sleeping"
    assert resident_mb(sleeper) < asleep + 0.2 * WEIGHTS_MB
    assert ask(sleeper) == said
    assert resident_mb(sleeper) > asleep + 0.8 * WEIGHTS_MB

    def is_said_to_be_awake() -> bool:
        """Asks too: where a look takes long it falls asleep again before it."""
        return ask(sleeper) == said and state(sleeper) == "loaded"

    sleeper.eventually(is_said_to_be_awake)
