"""Compares ways to choose a replica, in simulated time, and measures what our own choice costs.

    python -m tests.bench.routing [--replicas 4] [--seeds 0 1 2 3 4] [--plot routing.png]
    python -m tests.bench.routing --choice

Traces: chats that grow, and questions about few long documents. The router under test is the real
one, fed by the real reporter with its delays.
"""

import argparse
import bisect
import importlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from statistics import fmean
from typing import Protocol

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from deployments.contract.replica_status import ReplicaReport
from deployments.model.reporter import REPORT_INTERVAL_S, ReportWriter
from deployments.router.replicas.replica_set import ReplicaSet
from deployments.router.settings import RoutingSettings
from tests.bench.simulation.fleet import Clock, Job, Replica
from tests.bench.simulation.traces import (
    PAGE_SIZE,
    Conversation,
    Turn,
    multi_turn,
    pages,
    shared_prompts,
)
from tests.router import reports

NETWORK_S = 0.005
ORACLE_LIMIT = 1.1  # times the mean of all replicas' work, done and to come
ORACLE_SLACK_S = 1.0


class Policy(Protocol):
    def choose(self, name: str, session: str, turn: Turn) -> int: ...


class RoundRobin:
    def __init__(self, replicas: Sequence[Replica], clock: Clock, rng: random.Random) -> None:
        self._n, self._next = len(replicas), -1

    def choose(self, name: str, session: str, turn: Turn) -> int:
        self._next = (self._next + 1) % self._n
        return self._next


class PowerOfTwo:
    """The less busy of two drawn ones, which say at once how busy they are: Serve's default."""

    def __init__(self, replicas: Sequence[Replica], clock: Clock, rng: random.Random) -> None:
        self._replicas, self._rng = replicas, rng

    def choose(self, name: str, session: str, turn: Turn) -> int:
        drawn = self._rng.sample(range(len(self._replicas)), 2)
        return min(drawn, key=lambda at: len(self._replicas[at].jobs))


class ConsistentHash:
    """Routing by the conversation's name, on a ring with 64 points a replica."""

    def __init__(self, replicas: Sequence[Replica], clock: Clock, rng: random.Random) -> None:
        points = [(point(f"{at} {n}"), at) for at in range(len(replicas)) for n in range(64)]
        self._ring = sorted(points)

    def choose(self, name: str, session: str, turn: Turn) -> int:
        at = bisect.bisect(self._ring, (point(session), 0))
        return self._ring[at % len(self._ring)][1]


def point(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


class Oracle:
    """Knows all caches, what is being computed, and all work, at once.

    Of the replicas whose work, done and to come, is at most 1.1 times the mean (and a second), it
    takes the one that has most of the prompt, then the one with the least to do.
    """

    def __init__(self, replicas: Sequence[Replica], clock: Clock, rng: random.Random) -> None:
        self._replicas = replicas

    def choose(self, name: str, session: str, turn: Turn) -> int:
        left = [replica.work_left() for replica in self._replicas]
        work = [replica.work + more for replica, more in zip(self._replicas, left, strict=True)]
        limit = ORACLE_LIMIT * fmean(work) + ORACLE_SLACK_S
        fair = [at for at, total in enumerate(work) if total <= limit]
        return max(fair, key=lambda at: (self._replicas[at].overlap(turn.prompt), -left[at]))


class PrefixAffine:
    """The router's own object, told by each replica's reports as they come, a little late."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        clock: Clock,
        rng: random.Random,
        settings: RoutingSettings,
    ) -> None:
        self._clock = clock
        self._set = ReplicaSet("m", settings, lambda: clock.now, rng.getrandbits(32))
        self._writers = [
            ReportWriter("model-m", str(at), replica.pool.journal, replica.gauges)
            for at, replica in enumerate(replicas)
        ]
        self._open = True
        for writer in self._writers:
            self._deliver(writer, writer.write(0.0))
            clock.at(rng.uniform(0, REPORT_INTERVAL_S), partial(self._tick, writer))

    def choose(self, name: str, session: str, turn: Turn) -> int:
        chosen = self._set.choose(turn.prompt, name).replica_id
        assert chosen is not None
        # The replica sees it when it comes, and says so with its next report.
        self._clock.at(
            self._clock.now + NETWORK_S, partial(self._writers[int(chosen)].received, name)
        )
        return int(chosen)

    def close(self) -> None:
        self._open = False

    def _tick(self, writer: ReportWriter) -> None:
        if not self._open:
            return
        now = self._clock.now
        if writer.due(now):
            self._clock.at(now + NETWORK_S, partial(self._deliver, writer, writer.write(now)))
        self._clock.at(now + REPORT_INTERVAL_S, partial(self._tick, writer))

    def _deliver(self, writer: ReportWriter, report: ReplicaReport) -> None:
        writer.answered(self._set.report(report))


Maker = Callable[[Sequence[Replica], Clock, random.Random], Policy]
POLICIES: dict[str, Maker] = {
    "round robin": RoundRobin,
    "power of two": PowerOfTwo,
    "consistent hash": ConsistentHash,
    "prefix-affine": partial(PrefixAffine, settings=RoutingSettings()),
    "oracle": Oracle,
}


@dataclass(slots=True)
class Outcome:
    """Times in seconds.

    hit_rate: share of all prompt tokens that were cached.
    imbalance: the work of the replica that did most, over the mean.
    busy: share of the time that the work takes, on average.
    """

    hit_rate: float
    imbalance: float
    first_tokens: list[float] = field(repr=False)
    busy: float

    @property
    def mean_ttft(self) -> float:
        return fmean(self.first_tokens)

    @property
    def p99_ttft(self) -> float:
        return sorted(self.first_tokens)[int(0.99 * len(self.first_tokens))]


def simulate(
    conversations: Sequence[Conversation], make: Maker, n_replicas: int, n_pages: int, seed: int
) -> Outcome:
    clock = Clock()
    replicas = [Replica(str(at), n_pages, clock) for at in range(n_replicas)]
    policy = make(replicas, clock, random.Random(seed))
    done: list[Job] = []
    left = sum(len(conversation.turns) for conversation in conversations)

    def send(conversation: Conversation, at: int) -> None:
        name, turn = f"{conversation.name}, {at}", conversation.turns[at]
        chosen = replicas[policy.choose(name, conversation.name, turn)]
        job = Job(name, turn, clock.now, partial(finished, conversation, at))
        clock.at(clock.now + NETWORK_S, partial(chosen.submit, job))

    def finished(conversation: Conversation, at: int, job: Job) -> None:
        done.append(job)
        if at + 1 < len(conversation.turns):
            clock.at(clock.now + job.turn.think_s, partial(send, conversation, at + 1))
        elif len(done) == left and isinstance(policy, PrefixAffine):
            policy.close()

    for conversation in conversations:
        clock.at(conversation.start, partial(send, conversation, 0))
    clock.run()
    return outcome(done, replicas, clock.now)


def outcome(done: Sequence[Job], replicas: Sequence[Replica], seconds: float) -> Outcome:
    cached = sum(job.cached for job in done) * PAGE_SIZE
    work = [replica.work for replica in replicas]
    return Outcome(
        cached / sum(job.prompt_tokens for job in done),
        max(work) / fmean(work),
        [job.first - job.sent for job in done],
        sum(work) / seconds / len(replicas),
    )


def traces(n_replicas: int) -> dict[str, Callable[[int], list[Conversation]]]:
    """The same load a replica for any number of them."""
    share = n_replicas / 4
    return {
        "chats": partial(multi_turn, n=int(500 * share), per_second=2 * share),
        "busy chats": partial(multi_turn, n=int(500 * share), per_second=4 * share),
        "documents": partial(shared_prompts, n=int(2000 * share), per_second=8 * share),
    }


def compare(arguments: argparse.Namespace) -> dict[str, dict[str, list[Outcome]]]:
    """Simulates each policy on each trace; returns an outcome a seed, by trace and policy."""
    kinds = traces(arguments.replicas)
    outcomes: dict[str, dict[str, list[Outcome]]] = {
        kind: {name: [] for name in POLICIES} for kind in kinds
    }
    with Progress(transient=True) as progress:
        bar = progress.add_task(
            "simulating", total=len(kinds) * len(POLICIES) * len(arguments.seeds)
        )
        for kind, make_trace in kinds.items():
            for seed in arguments.seeds:
                trace = make_trace(seed)
                for name, make in POLICIES.items():
                    made = simulate(trace, make, arguments.replicas, arguments.pages, seed)
                    outcomes[kind][name].append(made)
                    progress.advance(bar)
    return outcomes


def table(kind: str, by_policy: dict[str, list[Outcome]]) -> Table:
    made = Table(title=kind)
    for column in (
        "policy",
        "hit rate",
        "of the oracle's",
        "max / mean",
        "TTFT ms",
        "p99 ms",
        "busy",
    ):
        made.add_column(column, justify="left" if column == "policy" else "right")
    for name, outcomes in by_policy.items():
        made.add_row(name, *figures(outcomes, by_policy["oracle"]))
    return made


def figures(outcomes: Sequence[Outcome], oracles: Sequence[Outcome]) -> list[str]:
    """Means over the seeds; of the ratio and the imbalance the worst seed too."""
    ratios = [run.hit_rate / best.hit_rate for run, best in zip(outcomes, oracles, strict=True)]
    imbalances = [run.imbalance for run in outcomes]
    return [
        f"{fmean(run.hit_rate for run in outcomes):.3f}",
        f"{fmean(ratios):.3f} (least {min(ratios):.3f})",
        f"{fmean(imbalances):.2f} (most {max(imbalances):.2f})",
        f"{fmean(run.mean_ttft for run in outcomes) * 1e3:.0f}",
        f"{fmean(run.p99_ttft for run in outcomes) * 1e3:.0f}",
        f"{fmean(run.busy for run in outcomes):.2f}",
    ]


def plot(outcomes: dict[str, dict[str, list[Outcome]]], path: str) -> None:
    """Hit rate against imbalance, a point a seed. Raises ModuleNotFoundError without matplotlib."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, len(outcomes), figsize=(5 * len(outcomes), 4), squeeze=False)
    for axis, (kind, by_policy) in zip(axes[0], outcomes.items(), strict=True):
        for name, seeds in by_policy.items():
            axis.scatter(
                [run.imbalance for run in seeds], [run.hit_rate for run in seeds], label=name
            )
        axis.set(title=kind, xlabel="work of the busiest over the mean", ylabel="token hit rate")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def time_choices(
    n_replicas: int = 64, prompt_pages: int = 500, n_prompts: int = 2000
) -> list[float]:
    """CPU seconds of choices for stored, half stored and new prompts, with a million pages."""
    rng, now = random.Random(0), 0.0
    stored_prompts = [pages(rng, prompt_pages) for _ in range(n_prompts)]
    replicas = ReplicaSet("m", RoutingSettings(), lambda: now, seed=0)
    for at in range(n_replicas):
        stored = [b"".join(prompt) for prompt in stored_prompts[at::n_replicas]]
        replicas.report(reports.report(str(at), stored=b"".join(stored), page_size=PAGE_SIZE))
    spent = []
    for number in range(n_prompts):
        now += 0.001
        known = (prompt_pages, prompt_pages // 2, 0)[number % 3]
        prompt = rng.choice(stored_prompts)[:known] + pages(rng, prompt_pages - known)
        began = time.process_time()
        replicas.choose(prompt, str(number))
        spent.append(time.process_time() - began)
    return spent


def main(arguments: argparse.Namespace) -> None:
    console = Console(width=110)
    if arguments.choice:
        spent = sorted(time_choices())
        median, p99 = spent[len(spent) // 2] * 1e6, spent[int(0.99 * len(spent))] * 1e6
        console.print(
            f"64 replicas, 1 M pages, 500-page prompts: {median:.0f} us, p99 {p99:.0f} us"
        )
        return
    outcomes = compare(arguments)
    for kind, by_policy in outcomes.items():
        console.print(table(f"{kind}, {arguments.replicas} replicas", by_policy))
    if arguments.plot:
        plot(outcomes, arguments.plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--pages", type=int, default=8192, help="of a replica's cache")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--plot", help="a PNG file to write; needs matplotlib")
    parser.add_argument("--choice", action="store_true", help="time our own choice instead")
    main(parser.parse_args())
