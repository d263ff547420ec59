"""A writer that is killed loses nothing that it was told is stored."""

import asyncio
import subprocess
import sys

from tests.databases import opened
from tests.effort import tries
from tests.store.talking import everything, identifier


def killed_amid_writes(url: str, first: int, n_writes: int) -> int:
    """The number of the last write that was acknowledged."""
    command = [sys.executable, "-m", "tests.store.writer", url, str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(n_writes):
            process.stdout.readline()
        process.kill()
        rest = process.stdout.read().split()
    return first + n_writes + len(rest) - 1


def test_a_killed_writer_loses_nothing_that_was_acknowledged(url: str) -> None:
    last, acknowledged = 0, set[str]()
    for kill in range(tries(1, 20)):
        # What was begun may have been stored without a word: the next one begins behind it.
        first = last + 2 if last else 1
        last = killed_amid_writes(url, first, n_writes=5 + kill)

        async def stored() -> set[str]:
            async with opened(url) as store:
                return {one["id"] for one in (await everything(store))[1]}

        found = asyncio.run(stored())
        acknowledged |= {identifier(n) for n in range(first, last + 1)}
        assert acknowledged <= found
