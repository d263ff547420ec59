"""What all tests of real servers share."""

from pathlib import Path

import pytest

from tests.checkpoints import save_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("tiny"))
