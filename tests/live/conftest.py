"""One Ray cluster for all tests of this folder: each deletes what it has deployed.

All are exhaustive: each starts models of its own. tests/e2e/shared says most of it of models that
run already, tests/engine/parallel of ranks in processes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.fleet import cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(scope="package", autouse=True)
def _cluster() -> Iterator[None]:
    with cluster():
        yield
