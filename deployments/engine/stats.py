"""The numbers that an engine says of itself: counters since its start, and gauges of now."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from deployments.engine.tasks.task import Task

DURATION_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # seconds


@dataclass(slots=True)
class Durations:
    """A histogram. counts: by the bucket of DURATION_BUCKETS, and of those beyond the last one."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(DURATION_BUCKETS, seconds)] += 1
        self.seconds += seconds

    def by_bound(self) -> Iterable[tuple[str, int]]:
        """Says how many are up to each bound and above the one before it."""
        return zip((*map(str, DURATION_BUCKETS), "+Inf"), self.counts, strict=True)

    def __add__(self, other: "Durations") -> "Durations":
        counts = [n + m for n, m in zip(self.counts, other.counts, strict=True)]
        return Durations(counts, self.seconds + other.seconds)


@dataclass(slots=True)
class EngineStats:
    """max_running: sequences that may run at once, of which memory may allow fewer than the limits
    do. pending_tokens: of prompts, not computed yet. context_tokens: known ones, prompt and output.
    retried_rows: rows of failed steps that were computed again. drafted_tokens: those that steps
    took for the next ones, in so many drafts; accepted_tokens: of them those that were, and
    accepted_by_position: the same of the first ones of their drafts, of the second ones, and so on.
    prompt_throughput, generation_throughput: tokens a second of the last minute's steps that had
    such tokens.
    media_encoded: images and sounds, each as often as a tower saw it; media_cache_hits: those whose
    vectors a sequence found.
    checkpoints: states kept for prefixes, and checkpoint_bytes of them; saved and restored: since
    the start.
    kv_disk_bytes: in the folder of `cache_disk`; the rest of them are counters. hit_tokens: tokens
    of prompts that were read from there; dropped: what was not written in time or could not be;
    corrupt: files that were not what they should be; declined: reads that would not have paid.
    restore_seconds: of reads; None where there is no such tier.
    cost: the time to bring a token over the time to compute it; 0: none is brought.
    kv_remote_hit_tokens, ...: the same of pages that other replicas have; corrupt: parcels of them.
    """

    max_running: int = 0
    active_requests: int = 0
    waiting_requests: int = 0
    total_requests: int = 0
    aborted_requests: int = 0
    cache_usage: float = 0.0  # share of pages held by tasks, 0 to 1
    tokens_generated: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    failed_steps: int = 0
    retried_rows: int = 0
    drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    accepted_by_position: list[int] = field(default_factory=list)
    pages_used: int = 0
    pages_total: int = 0
    pending_tokens: int = 0
    context_tokens: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    checkpoints_saved: int = 0
    checkpoints_restored: int = 0
    kv_disk_bytes: int = 0
    kv_disk_hit_tokens: int = 0
    kv_disk_read_bytes: int = 0
    kv_disk_written_bytes: int = 0
    kv_disk_dropped_bytes: int = 0
    kv_disk_corrupt: int = 0
    kv_disk_declined: int = 0
    kv_disk_restore_seconds: Durations | None = None
    kv_disk_cost: float = 0.0
    kv_remote_hit_tokens: int = 0
    kv_remote_read_bytes: int = 0
    kv_remote_corrupt: int = 0
    kv_remote_declined: int = 0
    kv_remote_restore_seconds: Durations | None = None
    kv_remote_cost: float = 0.0
    media_encoded: int = 0
    media_cache_hits: int = 0
    prompt_throughput: float = 0.0
    generation_throughput: float = 0.0

    def accept(self, position: int) -> None:
        """The drafted token at a position of its draft was the next one."""
        self.accepted_tokens += 1
        counts = self.accepted_by_position
        counts += [0] * (position + 1 - len(counts))
        counts[position] += 1

    def as_dict(self) -> dict[str, float]:
        """The single numbers."""
        numbers = {n: v for n, v in asdict(self).items() if isinstance(v, int | float)}
        return dict[str, float](numbers)


def count_tokens(tasks: Iterable[Task]) -> tuple[int, int]:
    """`pending_tokens` and `context_tokens` of running and waiting tasks, each counted once."""
    pending = context = 0
    for task in {*tasks}:
        pending += max(0, task.n_prompt - task.n_computed)
        context += task.n_tokens
    return pending, context
