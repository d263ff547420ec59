"""Engines of these tests run on one thread: other work shares the machine."""

import gc
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="package")
def what_was_frozen_stays_so() -> Iterator[None]:
    """A sleep that frees an engine looks at all objects. No engine is among those that the session
    has frozen, and to look at them would take two seconds each time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "get_freeze_count", lambda: 0)
        yield
