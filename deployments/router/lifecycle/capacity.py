"""Which models to load and which to evict: a pure state machine of waiting and loaded models.

Models that wait start in the order they came, but for those that take nothing of what the ones
before them lack. Only models that are idle, not pinned and wanted by nobody are ever evicted, the
least recently used first, and none in vain.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

TOLERANCE = 1e-6  # rounding error of sums of fractions of cores
GIB = 1 << 30
WAITS_FOR_ROOM = "waits for room"  # until models that are unloaded have left


class Resources(NamedTuple):
    """The needs of a model, or the resources of the cluster: infinite for no limit."""

    models: float = 1
    cpus: float = 0
    gpus: float = 0
    cpu_bytes: float = 0
    gpu_bytes: float = 0

    def plus(self, other: "Resources") -> "Resources":
        return Resources(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: "Resources") -> "Resources":
        return Resources(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Resources":
        """Returns the needs of `factor` times the replicas of one model."""
        return Resources(self.models, *(amount * factor for amount in self[1:]))

    def within(self, limits: "Resources") -> bool:
        return not self.excess(limits)

    def excess(self, limits: "Resources") -> set[str]:
        """Names of the resources that exceed the limits."""
        pairs = zip(self._fields, self, limits, strict=True)
        return {name for name, need, limit in pairs if need > limit + TOLERANCE}

    def takes(self, names: Collection[str]) -> bool:
        """Whether it needs any of these resources."""
        return any(getattr(self, name) > 0 for name in names)

    def limiting(self, needs: "Resources") -> "Resources":
        """These limits for the resources that are needed, and none for the others."""
        pairs = zip(self, needs, strict=True)
        return Resources(*(limit if need > 0 else math.inf for limit, need in pairs))


NOTHING = Resources(models=0)
UNLIMITED = Resources(math.inf, math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHolder:
    """A model that is deployed.

    needs: what it has now. `extra`: the part of it that it gives back when there is less to do.
    leaving: it is being unloaded, and holds what it has until it is gone.
    idle: loaded, and without a request.
    """

    name: str
    needs: Resources
    extra: Resources = NOTHING
    last_used: float = 0.0
    leaving: bool = False
    idle: bool = False
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The models to load and to evict now. `waits` and `refused` say why others do not start."""

    load: list[str] = field(default_factory=list)
    evict: list[str] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class Capacity:
    """`now` is any clock that never goes back, the same for all calls."""

    def __init__(self, limits: Resources = UNLIMITED) -> None:
        self.limits = limits
        self._queue: dict[str, Resources] = {}
        self._leases: dict[str, dict[str, float]] = {}

    @property
    def waiting(self) -> list[str]:
        return list(self._queue)

    def enqueue(self, name: str, needs: Resources, lessee: str, until: float) -> None:
        """A model that waits keeps its place, and what it needs may have changed."""
        self._queue[name] = needs
        self.lease(name, lessee, until)

    def lease(self, name: str, lessee: str, until: float) -> None:
        """Until then the model is not evicted, and keeps its place in the queue."""
        self._leases.setdefault(name, {})[lessee] = until

    def release(self, name: str, lessee: str) -> None:
        leases = self._leases.get(name, {})
        leases.pop(lessee, None)
        if not leases:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Takes the model out of the queue, and ends its leases."""
        self._queue.pop(name, None)
        self._leases.pop(name, None)

    def update_needs(self, name: str, needs: Resources) -> None:
        if name in self._queue:
            self._queue[name] = needs

    def plan(self, holders: Collection[ResourceHolder], now: float) -> CapacityPlan:
        """Models that start leave the queue, as do those for which there will never be room."""
        self._expire(now)
        plan = CapacityPlan()
        kept = {h.name: h for h in holders if not h.leaving}
        for name in kept:  # it was not unloaded after all
            self._queue.pop(name, None)
        self._refuse(holders, plan)
        self._plan_queue(holders, kept, plan)
        self._explain(plan)
        return plan

    def _plan_queue(
        self,
        holders: Collection[ResourceHolder],
        kept: dict[str, ResourceHolder],
        plan: CapacityPlan,
    ) -> None:
        """Plans the models in the order of the queue. `kept` loses the models that are evicted."""
        allocated = sum_resources(h.needs for h in holders)
        ahead = claimed = NOTHING  # by all models so far; by those for which there can be room
        lacking: set[str] = set()  # resources that models before lack
        for name, needs in self._queue.items():
            if needs.takes(lacking):
                continue
            ahead = ahead.plus(needs)
            limits = self.limits.limiting(needs)
            if short := self._shortage_beside(ahead, kept.values(), limits):
                plan.waits[name] = "waits for a loaded model to become idle"
                lacking |= short
                continue
            claimed = claimed.plus(needs)
            victims = self._victims(claimed, kept.values(), limits)
            plan.evict.extend(victims)
            for victim in victims:
                del kept[victim]
            is_next = WAITS_FOR_ROOM not in plan.waits.values()
            is_gone = all(holder.name != name for holder in holders)
            if is_next and is_gone and allocated.plus(needs).within(limits):
                plan.load.append(name)
                allocated = allocated.plus(needs)
            else:
                plan.waits[name] = WAITS_FOR_ROOM

    def admits(
        self, name: str, needs: Resources, holders: Collection[ResourceHolder], now: float
    ) -> bool:
        """Whether the model can be loaded after those that wait, if all idle ones are evicted."""
        self._expire(now)
        ahead = sum_resources(n for other, n in self._queue.items() if other != name)
        kept = [h for h in holders if not h.leaving and h.name != name]
        return not self._shortage_beside(ahead.plus(needs), kept, self.limits.limiting(needs))

    def has_room(self, needs: Resources, holders: Iterable[ResourceHolder]) -> bool:
        """Whether there is room beside those that wait, without an eviction."""
        allocated = sum_resources(h.needs for h in holders if not h.leaving)
        claimed = sum_resources(self._queue.values()).plus(allocated).plus(needs)
        return claimed.within(self.limits.limiting(needs))

    def _refuse(self, holders: Collection[ResourceHolder], plan: CapacityPlan) -> None:
        for name, needs in list(self._queue.items()):
            if shortage := self.shortage(needs, holders):
                plan.refused[name] = shortage
                self.forget(name)

    def shortage(self, needs: Resources, holders: Iterable[ResourceHolder]) -> str:
        """Why it can never be loaded, even beside pinned models only; "" if it can."""
        stay = (h for h in holders if h.pinned and not h.leaving)
        pinned = sum_resources(h.needs.minus(h.extra) for h in stay)
        lacking = needs.plus(pinned).excess(self.limits.limiting(needs))
        return "; ".join(
            describe_shortage(name, needs, self.limits.minus(pinned))
            for name in needs._fields
            if name in lacking
        )

    def _shortage_beside(
        self, claimed: Resources, kept: Iterable[ResourceHolder], limits: Resources
    ) -> set[str]:
        """The resources that lack for `claimed` if all models are evicted that may be."""
        stay = sum_resources(h.needs for h in kept if not self._evictable(h))
        return stay.plus(claimed).excess(limits)

    def _victims(
        self, claimed: Resources, kept: Collection[ResourceHolder], limits: Resources
    ) -> list[str]:
        """The models to evict so that there is room for `claimed`."""
        use = sum_resources(h.needs for h in kept).plus(claimed)
        victims: list[ResourceHolder] = []
        for holder in sorted(kept, key=lambda h: (h.last_used, h.name)):
            if self._evictable(holder) and holder.needs.takes(use.excess(limits)):
                victims.append(holder)
                use = use.minus(holder.needs)
        assert use.within(limits)
        return [victim.name for victim in minimal_victims(victims, use, limits)]

    def _evictable(self, holder: ResourceHolder) -> bool:
        return holder.idle and not holder.pinned and holder.name not in self._leases

    def _expire(self, now: float) -> None:
        for name, leases in list(self._leases.items()):
            self._leases[name] = {lessee: until for lessee, until in leases.items() if until > now}
            if not self._leases[name]:
                self.forget(name)

    def _explain(self, plan: CapacityPlan) -> None:
        for name in plan.load:
            del self._queue[name]
        for name in self._queue:
            plan.waits.setdefault(name, f"waits behind {next(iter(self._queue))!r}")


def minimal_victims(
    victims: list[ResourceHolder], use: Resources, limits: Resources
) -> list[ResourceHolder]:
    """Returns the victims without those that a later and larger one made needless."""
    kept: list[ResourceHolder] = []
    for holder in reversed(victims):
        if use.plus(holder.needs).within(limits):
            use = use.plus(holder.needs)
        else:
            kept.insert(0, holder)
    return kept


def sum_resources(many: Iterable[Resources]) -> Resources:
    result = NOTHING
    for needs in many:
        result = result.plus(needs)
    return result


def describe_shortage(name: str, needs: Resources, left: Resources) -> str:
    """How the need of one resource exceeds what is left of it."""
    need, there = getattr(needs, name), max(0.0, getattr(left, name))
    if name.endswith("bytes"):
        what = RESOURCE_NAMES[name]
        return f"it needs {need / GIB:.1f} GiB of {what} and can have {there / GIB:.1f}"
    return f"it needs {need:g} {RESOURCE_NAMES[name]} and can have {there:g}"


RESOURCE_NAMES: Mapping[str, str] = {
    "models": "place among the loaded models",
    "cpus": "CPUs",
    "gpus": "GPUs",
    "cpu_bytes": "memory",
    "gpu_bytes": "GPU memory",
}
