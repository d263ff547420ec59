"""One server a mode, shared by the tests that need nothing special of it."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.e2e.server import SMALL_POOL, THROUGHPUT_MODE, Server


@pytest.fixture(scope="package", params=["default", "throughput"])
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
