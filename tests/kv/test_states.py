"""Two slots a task: whatever fails, a step reads the state behind the tokens before it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kv.states import NO_STATE, StateSlots

N_TASKS = 3
# (task, new tokens, whether the step succeeds); no tokens: the task is preempted
steps = st.lists(st.tuples(st.integers(0, N_TASKS - 1), st.integers(0, 4), st.booleans()))


@given(steps)
def test_a_step_reads_what_the_last_good_one_wrote(steps: list[tuple[int, int, bool]]) -> None:
    slots, written = StateSlots(N_TASKS), dict[int, tuple[int, int]]()
    computed = [0] * N_TASKS
    for task in range(N_TASKS):
        slots.insert(str(task))
    for task, n, succeeds in steps:
        if n == 0:
            slots.remove(str(task))
            slots.insert(str(task))
            computed[task] = 0
            slots.check()
            continue
        total = computed[task] + n
        [[read, write]] = slots.take([str(task)], np.array([total]), np.array([n])).tolist()
        assert read != write
        if computed[task]:
            assert written[read] == (task, computed[task])
        else:
            assert read == NO_STATE
        written[write] = task, total if succeeds else -1  # else whatever the step left there
        computed[task] = total if succeeds else computed[task]


def test_tasks_have_slots_of_their_own() -> None:
    slots = StateSlots(2)
    slots.insert("a")
    slots.insert("b")
    both = [slots.take(["a", "b"], np.array([n, n]), np.array([1, 1])) for n in (1, 2)]
    assert not set(np.stack(both)[:, 0].ravel()) & set(np.stack(both)[:, 1, 1].ravel())
