"""Who loads and who goes, without Ray: examples, and laws under random operations."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from deployments.router.lifecycle.capacity import UNLIMITED, Capacity, ResourceHolder, Resources
from tests.effort import tries

NEVER = float("inf")
ONE = Resources()


def at_most(models: int) -> Capacity:
    return Capacity(UNLIMITED._replace(models=models))


def holder(name: str, used: float = 0.0, needs: Resources = ONE, **said: bool) -> ResourceHolder:
    state = {"idle": True, **said}
    return ResourceHolder(
        name=name,
        needs=needs,
        last_used=used,
        idle=state["idle"],
        leaving=state.get("leaving", False),
        pinned=state.get("pinned", False),
    )


def test_the_least_recently_used_idle_model_makes_room() -> None:
    capacity = at_most(3)
    capacity.enqueue("new", ONE, "me", NEVER)
    loaded = [holder("busy", 1, idle=False), holder("old", 2), holder("fresh", 3)]
    assert capacity.plan(loaded, now=4).evict == ["old"]


def test_a_model_loads_only_when_its_victim_is_gone() -> None:
    capacity = at_most(1)
    capacity.enqueue("new", ONE, "me", NEVER)
    assert capacity.plan([holder("old")], now=1).evict == ["old"]
    leaving = capacity.plan([holder("old", leaving=True)], now=1)
    assert (leaving.load, leaving.evict) == ([], [])
    assert capacity.plan([], now=1).load == ["new"]
    assert capacity.waiting == []


def test_a_busy_a_pinned_and_a_wanted_model_stay() -> None:
    capacity = at_most(2)
    capacity.enqueue("new", ONE, "me", NEVER)
    capacity.lease("wanted", "you", 10)
    loaded = [holder("busy", idle=False), holder("wanted")]
    assert capacity.plan(loaded, now=9).evict == []
    assert capacity.plan(loaded, now=11).evict == ["wanted"]
    assert capacity.plan([holder("busy", idle=False), holder("fixed", pinned=True)], 12).evict == []


def test_two_waiters_have_two_victims_and_keep_their_order() -> None:
    capacity = at_most(2)
    capacity.enqueue("first", ONE, "me", NEVER)
    capacity.enqueue("second", ONE, "me", NEVER)
    plan = capacity.plan([holder("a", 1), holder("b", 2)], now=3)
    assert plan.evict == ["a", "b"]
    assert capacity.plan([holder("b", leaving=True)], now=3).load == ["first"]
    assert capacity.plan([holder("first", idle=False)], now=3).load == ["second"]


def test_a_small_model_does_not_overtake_a_large_one() -> None:
    capacity = Capacity(UNLIMITED._replace(cpus=4))
    capacity.enqueue("large", Resources(cpus=3), "me", NEVER)
    capacity.enqueue("small", Resources(cpus=1), "me", NEVER)
    leaving = [holder("old", needs=Resources(cpus=2), leaving=True)]
    assert capacity.plan(leaving, now=0).load == []
    assert capacity.plan([], now=0).load == ["large", "small"]


def test_a_model_that_waits_for_a_gpu_lets_those_pass_that_need_none() -> None:
    capacity = Capacity(UNLIMITED._replace(models=9, cpus=8, gpus=1))
    busy = [holder("busy", needs=Resources(cpus=1, gpus=1), idle=False)]
    capacity.enqueue("gpu", Resources(cpus=3, gpus=1), "me", NEVER)
    capacity.enqueue("small", Resources(cpus=4), "me", NEVER)
    capacity.enqueue("another", Resources(gpus=1), "me", NEVER)
    assert capacity.admits("other", Resources(), busy, now=0)
    plan = capacity.plan(busy, now=0)
    assert plan.load == ["small"]
    assert plan.waits == {
        "gpu": "waits for a loaded model to become idle",
        "another": "waits behind 'gpu'",
    }
    loaded = [*busy, holder("small", needs=Resources(cpus=4), idle=False)]
    capacity.enqueue("late", Resources(cpus=1), "me", NEVER)  # of the cores that gpu will need
    assert capacity.plan(loaded, now=0).load == []
    assert capacity.plan(loaded[1:], now=0).load == ["gpu", "late"]


def test_a_model_that_passes_evicts_for_itself_alone() -> None:
    capacity = Capacity(UNLIMITED._replace(models=4, gpus=1))
    capacity.enqueue("gpu", Resources(gpus=1), "me", NEVER)
    capacity.enqueue("cpu", ONE, "me", NEVER)
    loaded = [holder(name, used) for used, name in enumerate("abc")]
    busy = holder("busy", needs=Resources(gpus=1), idle=False)
    assert capacity.plan([busy, *loaded], now=4).evict == ["a"]


def test_places_among_the_loaded_models_are_first_come_first_served() -> None:
    capacity = Capacity(UNLIMITED._replace(models=2, gpus=1))
    busy = [holder("busy", needs=Resources(gpus=1), idle=False)]
    capacity.enqueue("gpu", Resources(gpus=1), "me", NEVER)
    capacity.enqueue("cpu", ONE, "me", NEVER)
    assert capacity.plan(busy, now=0).load == []
    assert not capacity.admits("cpu", ONE, busy, now=0)


def test_what_a_lost_node_took_away_keeps_only_those_who_need_it() -> None:
    capacity = Capacity(UNLIMITED._replace(cpus=4, gpus=0))
    lost = [holder("on it", needs=Resources(cpus=1, gpus=1), idle=False)]
    capacity.enqueue("cpu", Resources(cpus=2), "me", NEVER)
    assert capacity.has_room(Resources(cpus=1), lost)
    assert capacity.plan(lost, now=0).load == ["cpu"]


def test_whoever_waits_no_longer_leaves_the_queue() -> None:
    capacity = at_most(1)
    busy = [holder("busy", idle=False)]
    capacity.enqueue("left", ONE, "me", 5)
    capacity.enqueue("kept", ONE, "you", NEVER)
    assert capacity.plan(busy, now=4).waits["kept"] == "waits behind 'left'"
    assert list(capacity.plan(busy, now=6).waits) == ["kept"]
    capacity.release("kept", "you")
    assert capacity.waiting == []


def test_one_of_two_who_want_a_model_may_leave() -> None:
    capacity = at_most(1)
    capacity.enqueue("m", ONE, "me", NEVER)
    capacity.enqueue("m", ONE, "you", NEVER)
    capacity.release("m", "me")
    assert capacity.waiting == ["m"]


def test_only_what_gives_the_missing_resource_is_evicted() -> None:
    capacity = Capacity(UNLIMITED._replace(gpus=2))
    capacity.enqueue("new", Resources(gpus=1), "me", NEVER)
    gpu = Resources(gpus=1)
    loaded = [holder("cpu", 0), holder("older", 1, gpu), holder("newer", 2, gpu)]
    assert capacity.plan(loaded, now=3).evict == ["older"]


def test_small_victims_are_spared_when_a_large_one_must_go_anyhow() -> None:
    capacity = Capacity(UNLIMITED._replace(cpu_bytes=10))
    capacity.enqueue("new", Resources(cpu_bytes=8), "me", NEVER)
    loaded = [
        holder("small", 0, Resources(cpu_bytes=2)),
        holder("large", 1, Resources(cpu_bytes=8)),
    ]
    assert capacity.plan(loaded, now=3).evict == ["large"]


def test_nothing_is_evicted_for_a_model_that_does_not_fit_even_so() -> None:
    capacity = Capacity(UNLIMITED._replace(gpus=2))
    capacity.enqueue("new", Resources(gpus=2), "me", NEVER)
    gpu = Resources(gpus=1)
    plan = capacity.plan([holder("idle", 0, gpu), holder("busy", 1, gpu, idle=False)], now=1)
    assert plan.evict == []
    assert plan.waits == {"new": "waits for a loaded model to become idle"}


def test_what_can_never_fit_is_refused_with_what_is_missing() -> None:
    capacity = Capacity(UNLIMITED._replace(cpus=2, gpus=4))
    capacity.enqueue("huge", Resources(cpus=4, gpus=3), "me", NEVER)
    capacity.enqueue("small", Resources(cpus=1), "me", NEVER)
    pinned = [holder("pinned", needs=Resources(cpus=0.5, gpus=2), pinned=True)]
    plan = capacity.plan(pinned, now=1)
    assert plan.refused == {
        "huge": "it needs 4 CPUs and can have 1.5; it needs 3 GPUs and can have 2"
    }
    assert plan.load == ["small"]


def test_what_a_pinned_model_gives_back_by_itself_is_waited_for() -> None:
    capacity = Capacity(UNLIMITED._replace(gpus=4))
    capacity.enqueue("new", Resources(gpus=2), "me", NEVER)
    extra = Resources(models=0, gpus=3)
    scaled = ResourceHolder(
        name="scaled", needs=Resources(gpus=4), extra=extra, pinned=True, idle=True
    )
    assert capacity.plan([scaled], now=0).waits == {
        "new": "waits for a loaded model to become idle"
    }
    capacity.enqueue("large", Resources(gpus=4), "me", NEVER)
    assert list(capacity.plan([scaled], now=0).refused) == ["large"]


def test_fractions_of_cores_add_up() -> None:
    capacity = Capacity(UNLIMITED._replace(cpus=0.3))
    tenth = Resources(cpus=0.1)
    for name in "abc":
        capacity.enqueue(name, tenth, "me", NEVER)
    assert capacity.plan([], now=0).load == ["a", "b", "c"]


def test_a_model_that_stays_after_all_leaves_the_queue() -> None:
    capacity = at_most(1)
    capacity.enqueue("m", ONE, "me", NEVER)
    assert list(capacity.plan([holder("m", leaving=True)], now=0).waits) == ["m"]
    plan = capacity.plan([holder("m", idle=False)], now=0)
    assert (plan.waits, plan.load, capacity.waiting) == ({}, [], [])


def test_a_load_on_request_counts_those_that_wait_already() -> None:
    capacity = at_most(2)
    loaded = [holder("a"), holder("b", idle=False)]
    assert capacity.admits("x", ONE, loaded, now=0)
    capacity.enqueue("y", ONE, "me", NEVER)
    assert not capacity.admits("x", ONE, loaded, now=0)
    assert capacity.admits("y", ONE, loaded, now=0)


@dataclass
class Model:
    needs: Resources
    pinned: bool
    state: str = "gone"
    used: float = 0.0

    def holder(self, name: str) -> ResourceHolder:
        return ResourceHolder(
            name=name,
            needs=self.needs,
            last_used=self.used,
            leaving=self.state == "leaving",
            idle=self.state == "idle",
            pinned=self.pinned,
        )


LIMITS = UNLIMITED._replace(models=3, cpus=4)
NAMES = [f"m{n}" for n in range(6)]
names = st.sampled_from(NAMES)


class Machine(RuleBasedStateMachine):
    """Six models on three slots and four cores; one of them is pinned, one takes all cores."""

    def __init__(self) -> None:
        super().__init__()
        self.capacity = Capacity(LIMITS)
        cores = [1, 1, 2, 2, 3, 4]
        self.models = {
            name: Model(Resources(cpus=cpus), pinned=name == "m0")
            for name, cpus in zip(NAMES, cores, strict=True)
        }
        self.now = 0.0
        self.came: list[str] = []  # in the order in which they began to wait

    def holders(self) -> list[ResourceHolder]:
        return [m.holder(name) for name, m in self.models.items() if m.state != "gone"]

    @rule(name=names, lessee=st.sampled_from("xy"), lease=st.integers(1, 8))
    def ensure_loaded(self, name: str, lessee: str, lease: int) -> None:
        model = self.models[name]
        if model.state in ("gone", "leaving"):
            if name not in self.capacity.waiting:
                self.came.append(name)
            self.capacity.enqueue(name, model.needs, lessee, self.now + lease)
        else:
            self.capacity.lease(name, lessee, self.now + lease)

    @rule(name=names, lessee=st.sampled_from("xy"))
    def leave(self, name: str, lessee: str) -> None:
        self.capacity.release(name, lessee)
        self.came = [n for n in self.came if n in self.capacity.waiting]

    @rule(name=names, to=st.sampled_from(["idle", "busy"]))
    def work(self, name: str, to: str) -> None:
        if self.models[name].state in ("loading", "idle", "busy"):
            self.models[name].state, self.models[name].used = to, self.now

    @rule(name=names)
    def unload(self, name: str) -> None:
        if self.models[name].state in ("loading", "idle", "busy"):
            self.models[name].state = "leaving"

    @rule(name=names)
    def vanish(self, name: str) -> None:
        if self.models[name].state == "leaving":
            self.models[name].state = "gone"

    @rule(name=names)
    def stay(self, name: str) -> None:
        """It was busy when it was asked, just before it would have gone."""
        if self.models[name].state == "leaving":
            self.models[name].state = "busy"

    @rule()
    def step(self) -> None:
        self.now += 1
        before = self.holders()
        waited = self.capacity.waiting
        plan = self.capacity.plan(before, self.now)
        left = self.capacity.waiting
        assert set(plan.waits) == set(left)
        self.came = [n for n in self.came if n in waited]
        still = [n for n in self.came if n in left or n in plan.load]
        assert plan.load == still[: len(plan.load)], "first come, first served"
        for name in plan.evict:
            self._evict(name, left)
        for name in plan.load:
            assert self.models[name].state == "gone"
            self.models[name].state = "loading"
        self.came = [n for n in self.came if n in left]

    def _evict(self, name: str, waiting: list[str]) -> None:
        model = self.models[name]
        assert model.state == "idle"
        assert not model.pinned
        assert name not in waiting
        assert waiting, "for nobody"
        model.state = "leaving"

    @precondition(lambda self: self.capacity.waiting)
    @rule()
    def all_are_served_once_the_world_is_quiet(self) -> None:
        """No deadlock and no starvation: with all idle and leases kept, each one's turn comes."""
        for name in self.capacity.waiting:
            self.capacity.lease(name, "kept", NEVER)
        pending = self.capacity.waiting
        for _ in range(6 * len(pending)):
            self.now += 10  # older leases of loaded models are over
            self._settle()
            plan = self.capacity.plan(self.holders(), self.now)
            for name in plan.evict:
                self.models[name].state = "leaving"
            for name in plan.load:
                self.models[name].state = "loading"
            served = [n for n in pending if self.models[n].state not in ("leaving", "gone")]
            for name in served:  # also what stayed after all
                self.capacity.forget(name)
            pending = [n for n in pending if n not in served and n not in plan.refused]
        assert pending == []
        self.came = []

    def _settle(self) -> None:
        for model in self.models.values():
            if model.state == "leaving":
                model.state = "gone"
            elif model.state in ("loading", "busy"):
                model.state, model.used = "idle", self.now

    @invariant()
    def never_more_than_there_is(self) -> None:
        allocated = [m.needs for m in self.models.values() if m.state != "gone"]
        assert len(allocated) <= LIMITS.models
        assert sum(needs.cpus for needs in allocated) <= LIMITS.cpus


TestCapacity = Machine.TestCase
TestCapacity.settings = settings(max_examples=tries(80, 400), stateful_step_count=40, deadline=None)
