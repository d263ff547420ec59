"""Shares the tests among processes, file by file. Tests that share a server stay in one process."""

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/web/browser", "tests/e2e/shared", "tests/live")
FIRST = (*TOGETHER, "tests/e2e")  # what takes longest, so that no process is alone at the end


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        # Most of a test there is compiling its own kernel. Those of memory fill the device.
        if path.startswith("tests/gpu/") and not path.endswith("test_memory.py"):
            return nodeid
        return next((folder for folder in TOGETHER if path.startswith(f"{folder}/")), path)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Counts the tests that a process has before it. It is asked several times a test.

        A process runs its files in turn: before the last one that is done there is nothing left.
        """
        pending = 0
        for tests in reversed(workload.values()):
            left = list(tests.values()).count(False)
            if not left:
                break
            pending += left
        return pending


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    def turn(item: pytest.Item) -> int:
        found = (at for at, folder in enumerate(FIRST) if item.nodeid.startswith(f"{folder}/"))
        return next(found, len(FIRST))

    return sorted(items, key=turn)
