"""A model's replicas as the router sees them: what they hold, how busy they are, the next one.

Pure: it is told by reports, asks a clock for the time and calls nobody.
"""

import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from deployments.contract.replica_status import ReplicaReport
from deployments.contract.routing import MIN_FETCHED_TOKENS
from deployments.router.replicas.policy import Candidate, choose
from deployments.router.replicas.prefix_index import PrefixIndex
from deployments.router.settings import RoutingSettings
from deployments.telemetry.metric_families import MetricFamily
from kv.arrivals import PrefixHolder

INFLIGHT_TIMEOUT_S = 4.0  # a request that no report names in this time will not come
REPORT_TIMEOUT_S = 5.0  # without a report for so long other replicas are preferred
REQUEST_COST_PAGES = 32  # the work of a request beside its prompt
WORK_WINDOW = 64  # requests a replica over which recent work fades
MIN_WORK_PAGES = 1000  # less work than this says little about imbalance
MAX_INFLIGHT = 65_536
MAX_SESSIONS = 65_536


@dataclass(frozen=True, slots=True)
class InflightRequest:
    """A request that was sent to a replica and has not been reported by it."""

    replica_id: str
    pages: int  # of its prompt, to be computed
    until: float


@dataclass(slots=True)
class Replica:
    """`is_in_sync`: its last report followed from those before it, back to a snapshot."""

    last_report: ReplicaReport
    reported_at: float
    is_in_sync: bool = False
    pending: float = 0.0  # pages to compute of prompts that it has
    inflight: int = 0  # requests that no report has named yet
    inflight_pages: int = 0
    recent_work: float = 0.0  # work that was sent here, in pages; it fades


class ReplicaChoice(NamedTuple):
    """The replica for a request, None when none is known; and another one from which it may pull
    pages of the prompt."""

    replica_id: str | None
    holder: PrefixHolder | None = None


class ReplicaSet:
    """`clock` returns monotonic seconds; `seed` is of all random choices."""

    def __init__(
        self,
        model: str,
        settings: RoutingSettings,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        self._model = model
        self._settings = settings
        self._clock = clock
        self._rng = random.Random(seed)
        self._index = PrefixIndex(settings.max_index_pages)
        self._replicas: dict[str, Replica] = {}
        self._inflight: OrderedDict[str, InflightRequest] = OrderedDict()  # oldest first
        self._sessions: OrderedDict[str, str] = OrderedDict()  # least recently used first
        self._last_use = float("-inf")
        self._n_choices = 0
        self._overlap_tokens = 0
        self._prompt_tokens = 0

    @property
    def replicas(self) -> list[str]:
        """Ids of those that have reported and are not gone."""
        return list(self._replicas)

    def last_report(self, replica_id: str) -> ReplicaReport | None:
        replica = self._replicas.get(replica_id)
        return None if replica is None else replica.last_report

    @property
    def running(self) -> int:
        """Running sequences of all replicas, as last reported."""
        return sum(replica.last_report.running for replica in self._replicas.values())

    @property
    def waiting(self) -> int:
        """Waiting sequences of all replicas, and requests that no report has named yet."""
        self._expire(self._clock())
        return sum(
            replica.last_report.waiting + replica.inflight for replica in self._replicas.values()
        )

    @property
    def busy(self) -> bool:
        return self.running + self.waiting > 0

    @property
    def asleep(self) -> bool:
        """Whether there are replicas and all of them sleep."""
        return bool(self._replicas) and all(
            replica.last_report.sleeping for replica in self._replicas.values()
        )

    @property
    def failure(self) -> str:
        """Why none of the replicas can wake; "" if one may."""
        failures = [replica.last_report.failure for replica in self._replicas.values()]
        return failures[0] if failures and all(failures) else ""

    @property
    def version(self) -> str:
        """The version of the card that most replicas have, the older one of two; "" without any."""
        versions = Counter(replica.last_report.version for replica in self._replicas.values())
        return max(versions, key=versions.__getitem__, default="")

    def version_of(self, replica_id: str | None) -> str:
        """Returns the version of a replica's card; "" of none."""
        return "" if replica_id is None else self._replicas[replica_id].last_report.version

    def idle_s(self) -> float:
        """Seconds since the last use: a choice, or the end of a request; 0 while busy."""
        if self.busy:
            return 0.0
        now = self._clock()
        ends = [
            replica.reported_at - replica.last_report.idle_s for replica in self._replicas.values()
        ]
        return now - max([self._last_use, *ends])

    def report(self, report: ReplicaReport) -> bool:
        """Whether the replica has to send a snapshot next."""
        now = self._clock()
        replica = self._replicas.get(report.replica_id)
        if replica is None:
            replica = self._replicas[report.replica_id] = Replica(report, now)
        elif is_stale(report, replica.last_report):
            return not replica.is_in_sync
        else:
            replica.is_in_sync &= is_next(report, replica.last_report)
        replica.last_report, replica.reported_at = report, now
        replica.pending = report.pending_tokens / max(1, report.page_size)
        self._update_index(report, replica)
        for request_id in report.received:
            self._end_inflight(request_id)
        return not replica.is_in_sync

    def keep_only(self, replica_ids: Set[str]) -> None:
        """Forgets replicas that are gone."""
        gone = self._replicas.keys() - replica_ids
        for replica_id in gone:
            del self._replicas[replica_id]
            self._index.forget(replica_id)
        if gone:  # a replica of that id that returns must not get their in-flight requests
            flights = (
                (k, flight) for k, flight in self._inflight.items() if flight.replica_id not in gone
            )
            self._inflight = OrderedDict(flights)

    def choose(
        self, hashes: Sequence[bytes], request_id: str, session: str = "", version: str = ""
    ) -> ReplicaChoice:
        """The replica for a prompt whose full pages have these hashes.

        One of this version, if there is any. The request counts there from now on; one that is
        chosen for again counts only once.
        """
        self._last_use = self._clock()
        self._expire(self._last_use)
        self._end_inflight(request_id)
        overlap, last = self._index.overlap(hashes), self._sessions.get(session)
        fresh = self._fresh_replicas(self._last_use, version)
        holders = self._holders(hashes, fresh)
        candidates = self._candidates(overlap, last, fresh, holders)
        chosen = choose(candidates, len(hashes), self._settings, self._rng)
        if chosen is None:
            return ReplicaChoice(None)
        self._add_inflight(chosen, request_id, hashes)
        self._remember(session, chosen.replica_id)
        self._count(chosen, len(hashes))
        holder = holders.get(chosen.replica_id) if chosen.pulled else None
        return ReplicaChoice(chosen.replica_id, holder)

    def families(self) -> list[MetricFamily]:
        """Metrics, with the model's name as a label."""
        self._expire(self._clock())
        model = {"model": self._model}
        inflight = [
            (model | {"replica": name}, replica.inflight)
            for name, replica in self._replicas.items()
        ]
        pages = [(model, len(self._index))]
        choices = [(model, self._n_choices)]
        prompts = [(model, self._prompt_tokens)]
        overlaps = [(model, self._overlap_tokens)]
        return [
            gauge("index_pages", "Pages that the router finds replicas by.", pages),
            gauge(
                "coming_requests", "Requests sent to a replica, not reported by it yet.", inflight
            ),
            counter("choices", "Replicas chosen for requests.", choices),
            counter("prompt_tokens", "Tokens in full pages of those requests' prompts.", prompts),
            counter(
                "overlap_tokens", "Tokens of those that the chosen replica was to have.", overlaps
            ),
        ]

    def _update_index(self, report: ReplicaReport, replica: Replica) -> None:
        if report.snapshot:
            self._index.restart(report.replica_id)
            replica.is_in_sync = True
        if replica.is_in_sync:  # else a snapshot will come, and the old pages are a better guess
            self._index.store(report.replica_id, report.stored)
            self._index.evict(report.replica_id, report.evicted)
        self._index.sweep()

    def _holders(
        self, hashes: Sequence[bytes], fresh: Mapping[str, Replica]
    ) -> Mapping[str, PrefixHolder]:
        """Returns for each replica that pulls the other one that has reported the most pages of a
        prompt, as far as there is any."""
        pulling = {k for k, replica in fresh.items() if replica.last_report.pull_cost}
        if len(pulling) < 2:
            return {}
        found = self._index.overlap(hashes, reported=True)
        held = sorted(
            (PrefixHolder(name, n) for name, n in found.items() if name in pulling),
            key=lambda holder: (-holder.n_pages, fresh[holder.replica_id].pending),
        )
        best = {name: next((h for h in held if h.replica_id != name), None) for name in pulling}
        return {name: holder for name, holder in best.items() if holder is not None}

    def _candidates(
        self,
        overlap: Mapping[str, int],
        last: str | None,
        fresh: Mapping[str, Replica],
        holders: Mapping[str, PrefixHolder],
    ) -> list[Candidate]:
        awake = [
            replica.recent_work for replica in fresh.values() if not replica.last_report.sleeping
        ]
        mean = sum(awake) / max(1, len(awake))
        scale = mean + MIN_WORK_PAGES
        return [
            Candidate(
                name,
                overlap.get(name, 0),
                replica.pending + replica.inflight_pages,
                last_report.running,
                last_report.waiting + replica.inflight,
                last_report.sleeping,
                name == last,
                0.0
                if last_report.sleeping or replica.recent_work < mean
                else (replica.recent_work - mean) / scale,
                _pulled(holders.get(name), overlap.get(name, 0), last_report),
                last_report.pull_cost,
            )
            for name, replica in fresh.items()
            for last_report in (replica.last_report,)
        ]

    def _fresh_replicas(self, now: float, version: str) -> Mapping[str, Replica]:
        """Replicas of this version, or all if there are none. Of these the ones that can wake, and
        of these the ones with a recent report, or all if there are none.
        """
        since = now - REPORT_TIMEOUT_S
        fit = {
            k: replica
            for k, replica in self._replicas.items()
            if replica.last_report.version == version
        }
        fit = fit or self._replicas
        fit = {k: replica for k, replica in fit.items() if not replica.last_report.failure} or fit
        return {k: replica for k, replica in fit.items() if replica.reported_at > since} or fit

    def _add_inflight(self, chosen: Candidate, request_id: str, hashes: Sequence[bytes]) -> None:
        """Counts the request at its replica until a report names it."""
        left = len(hashes) - round(chosen.saved)
        now = self._clock()
        self._index.predict(chosen.replica_id, hashes[chosen.overlap :], now)
        self._inflight[request_id] = InflightRequest(
            chosen.replica_id, left, now + INFLIGHT_TIMEOUT_S
        )
        for replica in self._replicas.values():
            replica.recent_work *= 1 - 1 / (WORK_WINDOW * len(self._replicas))
        replica = self._replicas[chosen.replica_id]
        replica.inflight += 1
        replica.inflight_pages += left
        replica.recent_work += left + REQUEST_COST_PAGES

    def _end_inflight(self, request_id: str) -> None:
        flight = self._inflight.pop(request_id, None)
        replica = self._replicas.get(flight.replica_id) if flight else None
        if flight and replica:
            replica.inflight -= 1
            replica.inflight_pages -= flight.pages

    def _expire(self, now: float) -> None:
        self._index.expire(now)
        while self._inflight:
            request_id, flight = next(iter(self._inflight.items()))
            if flight.until > now and len(self._inflight) < MAX_INFLIGHT:
                return
            self._end_inflight(request_id)

    def _remember(self, session: str, replica_id: str) -> None:
        if not session:
            return
        self._sessions[session] = replica_id
        self._sessions.move_to_end(session)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def _count(self, chosen: Candidate, prompt_pages: int) -> None:
        page_size = self._replicas[chosen.replica_id].last_report.page_size
        self._n_choices += 1
        self._prompt_tokens += prompt_pages * page_size
        self._overlap_tokens += chosen.overlap * page_size


def _pulled(holder: PrefixHolder | None, overlap: int, report: ReplicaReport) -> int:
    """Pages behind `overlap` that a replica would pull: so many that it is worth it, or none."""
    n = 0 if holder is None else holder.n_pages - overlap
    is_worth_it = n * report.page_size >= MIN_FETCHED_TOKENS and report.pull_cost < 1
    return n if is_worth_it else 0


def is_stale(report: ReplicaReport, last: ReplicaReport) -> bool:
    """Whether a later report arrived before this one."""
    return report.epoch == last.epoch and report.sequence <= last.sequence


def is_next(report: ReplicaReport, last: ReplicaReport) -> bool:
    return report.epoch == last.epoch and report.sequence == last.sequence + 1


Values = Iterable[tuple[dict[str, str], int]]  # labels and a number


def gauge(name: str, documentation: str, values: Values) -> MetricFamily:
    name = f"manta_router_{name}"
    samples = tuple((name, labels, float(value)) for labels, value in values)
    return MetricFamily(name, documentation, "gauge", samples)


def counter(name: str, documentation: str, values: Values) -> MetricFamily:
    name = f"manta_router_{name}"
    samples = tuple((f"{name}_total", labels, float(value)) for labels, value in values)
    return MetricFamily(name, documentation, "counter", samples)
