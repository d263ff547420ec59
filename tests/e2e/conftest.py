"""Fixtures of all tests of real servers: a model, and servers that end beside the next tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints import save_checkpoint
from tests.e2e.server import Server


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def ending() -> Iterator[list[Server]]:
    """Servers that were told to end. Before the session ends, each has, and has left nothing."""
    servers: list[Server] = []
    yield servers
    for server in servers:
        server.wait_ended()
