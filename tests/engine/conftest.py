"""Engine tests run on one thread: other work shares the machine."""

from collections.abc import Iterator

import pytest
import torch

from tests.engine.kernels.gpu.interpreter import Interpreter, interpreter


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Interpreter]:
    """One for all: it takes seconds to import what the kernels and the models around them need."""
    with interpreter() as running:
        yield running
