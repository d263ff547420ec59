"""One server a mode, shared by the tests that need nothing special of it."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.checkpoints import save_checkpoint
from tests.e2e.server import THROUGHPUT_MODE, Server

# Pages of 16 tokens for 16 sequences of 160 tokens, as the tests of many streams use them.
SMALL_POOL = {"dtype": "float32", "num_cpus": 1, "n_pages": 160, "name": "tiny"}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session", params=["default", "throughput"])
def server(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A tiny random model in float32, behind Serve's Python proxy and behind HAProxy."""
    environment = THROUGHPUT_MODE if request.param == "throughput" else {}
    folder = tmp_path_factory.mktemp(request.param)
    with Server(folder, {"model": str(checkpoint), **SMALL_POOL}, environment) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk
