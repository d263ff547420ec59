"""Clients take turns: none waits for another's queue, and none is kept waiting for ever."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.events import FinishReason
from deployments.contract.requests import GenerationRequest
from deployments.engine.scheduler.admission import Admission
from deployments.engine.scheduler.fair_queue import (
    MAX_CLIENTS,
    MAX_IDLE_PRIORITIES,
    WaitingQueue,
    cost,
)
from deployments.engine.tasks.mailbox import ThreadMailbox
from deployments.engine.tasks.task import Task, make_task
from tests.engine.drive import Engine, engine, random_ids, request, roomy

CONTEXT = 2000


class Line:
    """A queue, and the tasks that came to it."""

    def __init__(self) -> None:
        self.queue = WaitingQueue()
        self.n = 0

    def come(self, client: str, n_tokens: int = 10, priority: int = 0, own: int = 0) -> Task:
        one = request(f"{client}{self.n}", (1,) * n_tokens, max_tokens=0, priority=priority)
        one = replace(one, client=client, own_priority=own)
        mailbox = ThreadMailbox(0, SimpleQueue())
        task = make_task(f"{self.n}", one, mailbox, frozenset(), CONTEXT)
        self.queue.push(task, self.n)
        self.n += 1
        return task

    def serve(self, n: int | None = None) -> list[Task]:
        return [self.next() for _ in range(len(self.queue) if n is None else n)]

    def next(self) -> Task:
        task = self.queue.head
        self.queue.pop(task)
        return task


def clients(tasks: Sequence[Task]) -> str:
    return "".join(task.request.client for task in tasks)


sizes = st.integers(1, 900)
arrivals = st.lists(st.tuples(st.sampled_from("abc"), sizes, st.integers(-1, 1)), max_size=40)


@given(arrivals, st.data())
def test_each_client_is_served_in_the_order_it_came_and_priorities_are_strict(
    coming: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    line = Line()
    for client, size, priority in coming:
        line.come(client, size, priority)
        if data.draw(st.booleans()) and line.queue:
            urgent = min(task.request.priority for task in line.queue)
            (task,) = line.serve(1)
            assert task.request.priority == urgent
    served: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    rest = line.serve()
    assert [task.request.priority for task in rest] == sorted(t.request.priority for t in rest)
    for task in rest:
        served[task.request.client, task.request.priority].append(task.arrival)
    for arrivals in served.values():
        assert arrivals == sorted(arrivals)


priorities = st.integers(-2, 2)


@given(st.lists(st.tuples(sizes, priorities, priorities), max_size=30), st.data())
def test_one_client_alone_is_served_by_priority_its_own_and_as_it_came(
    coming: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    line = Line()
    tasks = [line.come("a", *arguments) for arguments in coming]
    for leaving in data.draw(st.lists(st.sets(st.sampled_from(tasks)))) if tasks else []:
        line.queue.remove(leaving.intersection(tasks))
        tasks = [task for task in tasks if task not in leaving]
    orders = {task: (task.request.priority, task.request.own_priority) for task in tasks}
    assert line.serve() == sorted(tasks, key=lambda task: (*orders[task], task.arrival))


@given(st.lists(st.tuples(st.sampled_from("ab"), sizes, priorities), min_size=2, max_size=60))
def test_two_that_always_have_something_waiting_get_as_many_tokens(
    coming: list[tuple[str, int, int]],
) -> None:
    """The difference is never more than what the largest task of each costs, however urgent each
    says its own are.
    """
    line = Line()
    for client, size, own in coming:
        line.come(client, size, own=own)
    largest = 2 * max(cost(task) for task in line.queue)
    served: Counter[str] = Counter()
    while {task.request.client for task in line.queue} == {"a", "b"}:
        (task,) = line.serve(1)
        served[task.request.client] += cost(task)
        assert abs(served["a"] - served["b"]) <= largest


@given(st.lists(sizes, min_size=1, max_size=50), st.integers(0, 49), sizes)
def test_a_newcomer_goes_before_all_that_another_client_has_waiting(
    queued: list[int], n_served: int, size: int
) -> None:
    line = Line()
    first = line.come("a", 5)
    for other in queued:
        line.come("a", other)
    assert line.serve(1) == [first]
    line.serve(min(n_served, len(queued)))
    newcomer = line.come("b", size)
    assert line.serve(1) == [newcomer]


@pytest.mark.parametrize("size", [1, 700])
def test_endless_newcomers_do_not_keep_a_client_waiting(size: int) -> None:
    line = Line()
    tasks = [line.come("a", 100) for _ in range(3)]
    served: list[Task] = []
    for i in range(4000):
        line.come(f"newcomer {i}", size)
        served += line.serve(1)
    assert set(tasks) <= set(served)


def test_a_client_with_large_requests_gets_fewer_of_them() -> None:
    line = Line()
    for _ in range(40):
        line.come("a", 100)
        line.come("b", 400)
    assert Counter(clients(line.serve(25))) == {"a": 20, "b": 5}


def test_what_was_not_served_costs_its_client_nothing() -> None:
    line = Line()
    left = [line.come("a", 900) for _ in range(9)]
    line.come("b", 10)
    line.come("b", 10)
    for tasks in (left[1:3], left[3:], left[:1]):
        line.queue.remove(tasks)
    line.come("a", 10)
    line.come("a", 10)
    assert clients(line.serve()) == "baba"


@given(st.lists(st.tuples(st.sampled_from("abc"), sizes), min_size=3, max_size=30), st.data())
def test_what_is_put_back_goes_before_what_it_went_before(
    coming: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Serving it again changes nothing as long as nothing new comes."""
    line, same = Line(), Line()
    for client, size in coming:
        line.come(client, size)
        same.come(client, size)
    expected = [task.id for task in same.serve()]
    served = line.serve(data.draw(st.integers(1, len(coming))))
    n = data.draw(st.integers(1, len(served)))
    newcomer = line.come("d", 3)
    for task in data.draw(st.permutations(served[-n:])):
        line.queue.put_back(task)
    rest = line.serve()
    assert rest.index(newcomer) >= n
    rest.remove(newcomer)
    assert [task.id for task in served[:-n] + rest] == expected


def test_idle_clients_are_forgotten() -> None:
    line = Line()
    for i in range(3 * MAX_CLIENTS):
        line.come(f"client {i}", priority=i % (2 * MAX_IDLE_PRIORITIES))
        line.serve()
    idle = line.queue._idle
    assert len(idle) == MAX_IDLE_PRIORITIES
    assert sum(len(queue._finishes) for queue in idle.values()) <= 3 * MAX_CLIENTS
    for i in range(3 * MAX_CLIENTS):
        line.come(f"client {i}")
        line.serve()
    assert len(idle[0]._finishes) == MAX_CLIENTS
    line.queue.reset()
    assert not idle


@given(st.integers(1, 200), st.lists(st.sampled_from("aaabc"), max_size=400), st.data())
def test_no_client_has_the_whole_queue_and_nobody_is_lost(
    max_waiting: int, coming: list[str], data: st.DataObject
) -> None:
    line, admission = Line(), Admission(max_waiting)
    admitted: list[Task] = []
    for client in coming:
        task = line.come(client)
        waiting = Counter(other.request.client for other in admitted)
        free = max_waiting - len(admitted)
        if waiting[client] < 8 * free:
            admission.admit(task)
            admitted.append(task)
        else:
            with pytest.raises(Refused) as refusal:
                admission.admit(task)
            assert refusal.value.error.kind is ErrorKind.OVERLOADED
            assert ("this client" in str(refusal.value)) == (free > 0)
        if admitted and data.draw(st.integers(0, 3)) == 0:
            gone = admitted.pop(data.draw(st.integers(0, len(admitted) - 1)))
            admission.leave(gone)
            admission.leave(gone)
        assert len(admission) == len(admitted) <= max_waiting


@pytest.mark.parametrize(("max_waiting", "share"), [(1, 1), (4, 4), (8, 8), (9, 8), (1024, 911)])
def test_a_client_alone_may_have_all_of_a_small_queue_and_most_of_a_large_one(
    max_waiting: int, share: int
) -> None:
    line, admission = Line(), Admission(max_waiting)
    for _ in range(share):
        admission.admit(line.come("a"))
    with pytest.raises(Refused):
        admission.admit(line.come("a"))
    if share < max_waiting:
        admission.admit(line.come("b"))


def of(client: str, name: str, n_tokens: int = 4, max_tokens: int = 3) -> GenerationRequest:
    one = request(name, random_ids(n_tokens, seed=len(name)), max_tokens=max_tokens)
    return replace(one, client=client)


def test_a_client_with_many_requests_waiting_does_not_delay_another_one() -> None:
    flood = [of("a", f"a{i}") for i in range(60)]
    others = [of("b", "b0"), of("c", "c0"), of("b", "b1")]
    with engine(limits=roomy(max_running=2)) as running:
        ended = running.order_of_ends(*flood, *others)
    ranks = [ended.index(req.request_id) for req in others]
    assert ranks[:2] == sorted(ranks[:2]), "they came one after the other"
    assert max(ranks[:2]) < 5
    assert ranks[2] < 8
    assert [name for name in ended if name[0] == "a"] == [req.request_id for req in flood]


def test_preempted_tasks_of_several_clients_end_as_if_undisturbed() -> None:
    requests = [of("abc"[i % 3], f"r{i}", 9 + i, 20) for i in range(9)]
    with engine() as running:
        expected = [running.run(req)[0].token_ids for req in requests]
    with engine(limits=roomy(n_pages=14, max_running=4)) as running:
        outcomes = running.run_at_once(*requests)
        assert running.core.stats().preemptions > 0
    assert [outcome.token_ids for outcome in outcomes] == expected


@pytest.mark.parametrize("is_async", [False, True])
def test_who_asks_for_little_waits_for_no_long_answer_of_another_client(is_async: bool) -> None:
    flood = [of("a", f"a{i}", 5 + i, 30) for i in range(9)]
    few = [of("b", "b", max_tokens=1), of("b", "bb", max_tokens=2), of("c", "c", max_tokens=1)]
    with engine() as running:
        expected = [running.run(req)[0].token_ids for req in (*flood, *few)]
    with engine(limits=roomy(max_running=4, async_scheduling=is_async)) as running:

        def coming() -> Iterator[GenerationRequest]:
            running.gate.close()
            yield from flood
            for _ in range(6):
                running.gate.step()
            yield from few
            running.gate.open()

        found: dict[int, list[int]] = defaultdict(list)
        ended = []
        for index, event in running.core.run(coming()):
            found[index] += event.token_ids
            if event.finish_reason is not None:
                ended.append(index)
        assert 1 <= running.core.stats().preemptions <= len(few)
    assert {*ended[: len(few)]} == {9, 10, 11}
    assert [tuple(found[index]) for index in range(12)] == expected


@dataclass
class Crowd:
    """Requests that come to a closed gate, behind one that runs."""

    running: Engine

    async def come(self, *requests: GenerationRequest) -> list["asyncio.Task[object]"]:
        self.running.gate.close()
        tasks: list[asyncio.Task[object]] = []
        for req in (of("", "plug"), *requests):
            tasks.append(asyncio.create_task(self.running.follow(req)))
            await asyncio.sleep(0)
            self.running.gate.await_step()
        return tasks


def test_a_client_is_told_that_its_share_is_full_and_another_one_is_let_in() -> None:
    async def scenario() -> None:
        flood = [of("a", f"a{i}") for i in range(20)]
        tasks = await Crowd(running).come(*flood, of("b", "b"), of("c", "c"))
        stats = running.core.stats()
        assert stats.waiting_requests == 18
        assert stats.context_tokens == 4 * 19
        assert stats.pending_tokens == 4 * 19
        running.gate.open()
        outcomes = [(await task).outcome for task in tasks]  # type: ignore[attr-defined]
        refused = [outcome for outcome in outcomes if outcome.finish_reason is FinishReason.ERROR]
        assert [outcome.error.kind for outcome in refused] == [ErrorKind.OVERLOADED] * 4
        assert all("this client" in outcome.error.message for outcome in refused)
        assert outcomes[-1].finish_reason is outcomes[-2].finish_reason is FinishReason.LENGTH
        stats = running.core.stats()
        assert (stats.waiting_requests, stats.context_tokens, stats.pending_tokens) == (0, 0, 0)

    with engine(limits=roomy(max_running=1, max_waiting=18)) as running:
        asyncio.run(scenario())


def test_what_another_replica_has_begun_is_let_into_a_full_queue() -> None:
    async def scenario() -> None:
        moved = replace(of("a", "moved"), produced_ids=(1,))
        flood = [of("a", f"a{i}") for i in range(8)]
        tasks = await Crowd(running).come(*flood, moved, of("b", "b"))
        running.gate.open()
        outcomes = [(await task).outcome for task in tasks]  # type: ignore[attr-defined]
        assert outcomes[-1].finish_reason is FinishReason.ERROR  # there is no slot at all
        assert outcomes[-2].finish_reason is FinishReason.LENGTH

    with engine(limits=roomy(max_running=1, max_waiting=4)) as running:
        asyncio.run(scenario())
