"""The scenes of the benchmark: each returns figures without a tier and with one, and a demand."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

from deployments.engine.core import EngineCore
from kv.arrivals import PageKey
from kv.tiers.bundle import ALIGNMENT, MAX_RECORDS, NO_PARENT, SUFFIX, make_header, owner_tag
from kv.tiers.folder import BundleFolder
from tests.bench.tiers.engines import Ids, Words, ask, engine, pages_for, quantile, request

Folder = AbstractContextManager[Path]
Fresh = Callable[[], Folder]


@dataclass(frozen=True)
class Demand:
    """A figure without a tier and with one; their ratio is to be on one side of `bound`."""

    name: str
    figures: Sequence[float]
    bound: float
    at_least: bool = False

    def __str__(self) -> str:
        without, with_tier = self.figures
        ratio = with_tier / without
        is_met = ratio >= self.bound if self.at_least else ratio <= self.bound
        word = "at least" if self.at_least else "at most"
        told = f"{self.name}: {without:.4g} without, {with_tier:.4g} with"
        return (
            f"{told}; ratio {ratio:.3f}, {word} {self.bound:.3g}: {'met' if is_met else 'MISSED'}"
        )


@contextmanager
def both(
    shape: str, fresh: Fresh, *, first: bool = False, **limits: int
) -> Iterator[dict[bool, EngineCore]]:
    """An engine without a tier, and one with. The `first` one is built first: of two engines alike
    that one has been up to 8 % faster, by where its memory lies."""
    with ExitStack() as stack:
        folder = stack.enter_context(fresh())
        yield {
            has_tier: stack.enter_context(engine(shape, folder if has_tier else None, **limits))
            for has_tier in (first, not first)
        }


def conversations(
    shape: str, fresh: Fresh, n_turns: int, n: int = 8, n_tokens: int = 2048
) -> list[Demand]:
    """Conversations that need four times the cache take turns, one after the other."""
    firsts: dict[bool, list[float]] = {False: [], True: []}
    n_pages = pages_for(n * n_tokens // 4)
    with both(shape, fresh, n_pages=n_pages, max_running=4) as cores:
        for has_tier, core in cores.items():
            words = Words()
            talks = [words(n_tokens - 80 * n_turns) for _ in range(n)]
            for turn in range(n_turns):
                for index, said in enumerate(talks):
                    timed = ask(core, [said], 16)
                    talks[index] = said + tuple(timed.tokens[0]) + words(64)
                    if turn:
                        firsts[has_tier].append(timed.first_token_s)
            tell(core)
    names = {"p50": 0.5, "p90": 0.9}
    return [
        Demand(
            f"TTFT {name} of later turns, s",
            [quantile(firsts[has_tier], share) for has_tier in (False, True)],
            bound=1 / 3,
        )
        for name, share in names.items()
    ]


def nothing_hit(shape: str, fresh: Fresh, n_rounds: int) -> list[Demand]:
    """Prompts that nobody has asked before, four at once, on both engines in turns."""
    firsts: dict[bool, list[float]] = {False: [], True: []}
    speeds: dict[bool, list[float]] = {False: [], True: []}
    words = Words()
    for first in (False, True):
        with both(shape, fresh, first=first, n_pages=pages_for(8192), max_running=4) as cores:
            for number in range(n_rounds + 1):
                for has_tier in (False, True) if number % 2 else (True, False):
                    timed = ask(cores[has_tier], [words(768) for _ in range(4)], 64)
                    if number:  # the first one is not counted
                        firsts[has_tier].append(timed.first_token_s)
                        speeds[has_tier].append(timed.tokens_per_s)
            tell(cores[True])
    ttft = [statistics.median(firsts[has_tier]) for has_tier in (False, True)]
    speed = [statistics.median(speeds[has_tier]) for has_tier in (False, True)]
    return [
        Demand("TTFT, s", ttft, bound=1 / 0.97),
        Demand("tokens/s", speed, bound=0.97, at_least=True),
    ]


def streams(shape: str, fresh: Fresh, n_rounds: int, n_tokens: int = 200) -> list[Demand]:
    """A stream goes on beside prompts that are found: in memory, or on the disk."""
    words = Words()
    prompts = [words(1025) for _ in range(8)]
    gaps: dict[bool, list[float]] = {False: [], True: []}
    sizes = {False: 8 * 1040 + 2048, True: 2 * 1040 + 1024}  # in memory all are found, or two
    with fresh() as folder, ExitStack() as stack:
        cores = {
            has_tier: stack.enter_context(
                engine(shape, folder if has_tier else None, n_pages=pages_for(size), max_running=4)
            )
            for has_tier, size in sizes.items()
        }
        for core in cores.values():
            for prompt in prompts:
                ask(core, [prompt], 1)
                wait_until_written(core)
        for _ in range(n_rounds):
            for has_tier, core in cores.items():
                gaps[has_tier] += asyncio.run(gaps_beside(core, words(32), prompts, n_tokens))
        tell(cores[True])
    return [
        Demand(
            f"ITL {name} of the stream, s",
            [quantile(gaps[has_tier], share) for has_tier in (False, True)],
            bound=1.1,
        )
        for name, share in {"p50": 0.5, "p99": 0.99}.items()
    ]


async def gaps_beside(
    core: EngineCore, start: Ids, prompts: Sequence[Ids], n_tokens: int
) -> list[float]:
    """Seconds between the tokens of a stream, while the prompts are asked in turns."""

    async def ask_in_turns() -> None:
        for number in count():
            async for _ in core.stream(request(prompts[number % len(prompts)], 1)):
                pass
            await asyncio.sleep(0.1)

    asking = asyncio.create_task(ask_in_turns())
    moments = []
    async for event in core.stream(request(start, n_tokens)):
        moments += [time.perf_counter()] * len(event.token_ids)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return [b - a for a, b in pairwise(moments[8:])]


def restart(shape: str, n_tokens: int, fresh: Fresh) -> list[Demand]:
    """A prompt is computed, the engine ends, and another one is asked it again."""
    prompt = Words()(n_tokens)
    limits = {"n_pages": pages_for(n_tokens + 64), "max_running": 1}
    with fresh() as folder:
        with engine(shape, folder, **limits) as core:
            cold = ask(core, [prompt], 4)
        with engine(shape, folder, **limits) as core:
            ask(core, [prompt[:8]], 1)  # a first step, which compiles
            warm = ask(core, [prompt], 4)
            tell(core)
    assert warm.tokens == cold.tokens, "a restored prefix is not what was computed"
    return [Demand("TTFT, s", [cold.first_token_s, warm.first_token_s], bound=0.05)]


def storm(shape: str, fresh: Fresh, n_rounds: int) -> list[Demand]:
    """Twelve sequences begin in pages that have no room for their ends."""
    speeds: dict[bool, list[float]] = {False: [], True: []}
    words = Words()
    limits = {"n_pages": pages_for(12 * 272), "max_running": 12}
    for first in (False, True):
        with both(shape, fresh, first=first, **limits) as cores:
            for number in range(n_rounds + 1):
                for has_tier, core in cores.items():
                    timed = ask(core, [words(256) for _ in range(12)], 256 if number else 8)
                    if number:
                        speeds[has_tier].append(timed.tokens_per_s)
            for core in cores.values():
                print(f"{core.stats().preemptions} preemptions")
            tell(cores[True])
    medians = [statistics.median(speeds[has_tier]) for has_tier in (False, True)]
    return [Demand("tokens/s", medians, bound=1.0, at_least=True)]


def index(fresh: Fresh, n_pages: int = 100_000) -> list[Demand]:
    """A folder with many pages is read anew; files have holes in the place of pages."""
    namespace = bytes(16)
    with fresh() as folder:
        (folder / namespace.hex()).mkdir()
        for first in range(0, n_pages, MAX_RECORDS):
            _write_hollow(folder, namespace, range(first, min(n_pages, first + MAX_RECORDS)))
        begun = time.perf_counter()
        bundles = BundleFolder(folder, namespace, 1 << 50)
        bundles.refresh()
        taken = time.perf_counter() - begun
        assert len(bundles.index) == n_pages
        bundles.close()
    return [Demand("seconds to read the folder, beside 1 s", [1.0, taken], bound=1.0)]


def _write_hollow(folder: Path, namespace: bytes, numbers: range, page_bytes: int = 8192) -> None:
    keys = [PageKey(number.to_bytes(16, "big")) for number in numbers]
    pages = [(key, page_bytes, 0) for key in keys]
    header = make_header(namespace, owner_tag(""), NO_PARENT, 0, pages)
    path = folder / namespace.hex() / header.name
    assert path.suffix == SUFFIX
    with path.open("wb") as file:
        file.write(header.encode().ljust(ALIGNMENT, b"\0"))
        os.truncate(file.fileno(), header.n_bytes)


def wait_until_written(core: EngineCore, seconds: float = 5.0) -> None:
    """Waits until nothing more is written."""
    end, before = time.monotonic() + seconds, -1
    while (now := core.stats().kv_disk_written_bytes) != before and time.monotonic() < end:
        before = now
        time.sleep(0.2)


def tell(core: EngineCore) -> None:
    """Prints what the tier did."""
    stats = core.stats()
    if stats.kv_disk_restore_seconds is not None:
        mib = {
            name: getattr(stats, f"kv_disk_{name}_bytes") / 2**20
            for name in ("read", "written", "dropped")
        }
        told = ", ".join(f"{n:.0f} MiB {name}" for name, n in mib.items())
        hits = f"{stats.kv_disk_hit_tokens} tokens hit, {stats.kv_disk_declined} reads declined"
        print(f"{told}, {hits}")
