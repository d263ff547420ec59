"""Whatever fails or is drafted, a step reads the state behind the tokens before it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kv.journal import Journal
from kv.states import NO_STATE, StateSlots

N_TASKS, MAX_DRAFTED = 3, 3
# (task, new tokens, drafted ones of these, how many of those are right; None: the step fails); no
# tokens: the task is preempted
counts = st.integers(0, MAX_DRAFTED)
steps = st.lists(
    st.tuples(st.integers(0, N_TASKS - 1), st.integers(0, 4), counts, st.none() | counts)
)


@given(steps)
def test_a_step_reads_what_the_last_good_one_wrote(
    steps: list[tuple[int, int, int, int | None]],
) -> None:
    slots, written = StateSlots(N_TASKS, max_drafted=MAX_DRAFTED), dict[int, tuple[int, int]]()
    computed = [0] * N_TASKS
    for task in range(N_TASKS):
        slots.insert(str(task))
    for task, n, drafted, n_right in steps:
        if n == 0:
            slots.remove(str(task))
            slots.insert(str(task))
            computed[task] = 0
            slots.check(map(str, range(N_TASKS)))
            continue
        n_drafted = min(drafted, n - 1)
        total = computed[task] + n
        lengths = np.array([total]), np.array([n])
        [[read, last, *inner]] = slots.take([str(task)], *lengths, n_drafted=[n_drafted]).tolist()
        assert len({read, last, *inner}) == 2 + len(inner) == 2 + n_drafted
        if computed[task]:
            assert written[read] == (task, computed[task])
        else:
            assert read == NO_STATE
        for behind, slot in enumerate([*inner, last], total - n_drafted):
            written[slot] = task, -1 if n_right is None else behind  # else whatever it left there
        if n_right is not None:
            computed[task] = total - max(0, n_drafted - n_right)
        slots.settle(str(task), computed[task])
        slots.check(map(str, range(N_TASKS)))


def test_tasks_have_slots_of_their_own() -> None:
    slots = StateSlots(2)
    slots.insert("a")
    slots.insert("b")
    both = [slots.take(["a", "b"], np.array([n, n]), np.array([1, 1])) for n in (1, 2)]
    assert not set(np.stack(both)[:, 0].ravel()) & set(np.stack(both)[:, 1, 1].ravel())


def test_behind_a_step_that_was_launched_ahead_in_vain_stands_the_last_good_state() -> None:
    slots = StateSlots(1)
    slots.insert("a")

    def take(before: int, committed: int) -> tuple[int, int]:
        lengths = np.array([before + 1]), np.array([1]), np.array([committed])
        [[read, written]] = slots.take(["a"], *lengths).tolist()
        slots.check(["a"])
        return read, written

    _, first = take(0, committed=0)
    good, second = take(1, committed=1)
    ahead, _ = take(2, committed=1)
    assert (good, ahead) == (first, second)
    assert take(1, committed=1)[0] == first  # the step that was in progress has failed


def test_checkpoints_are_bounded_and_the_least_recently_used_goes_first() -> None:
    journal = Journal()
    slots = StateSlots(2, 2, journal)
    for number in range(3):
        slots.insert(f"{number}")
        slots.take([f"{number}"], np.array([4]), np.array([4]))
        slots.record(f"{number}", 4, 0, [b"root", bytes([number])])
        slots.remove(f"{number}")
        if number == 1:
            slots.insert("again", [b"root", bytes([0])], 4)
            slots.remove("again")
        slots.check([])
    assert [slots.longest([bytes([number])]) for number in range(3)] == [1, 0, 1]
    assert (slots.n_saved, slots.n_restored) == (3, 1)
    stored, evicted = journal.drain()
    assert (sorted(stored), evicted) == (sorted(b"root" + bytes([0, 2])), b"")
