"""One Ray cluster for all tests of this folder: each deletes what it has deployed."""

from collections.abc import Iterator

import pytest

from tests.live.fleet import cluster


@pytest.fixture(scope="package", autouse=True)
def _cluster() -> Iterator[None]:
    with cluster():
        yield
