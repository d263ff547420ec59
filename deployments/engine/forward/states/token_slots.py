"""Tells kernels where the tokens of a step find their states, at an address that stays."""

import torch

from deployments.engine.forward.inputs import StepInputs
from deployments.engine.kernels.cpu.dispatch import MAX_RECORDED_TOKENS
from deployments.engine.kernels.cpu.states.delta_ops import TokenSlots
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU
from kv.states import NO_STATE


class StaticTokenSlots:
    """The memory that recorded steps read. Those of more tokens have memory of their own."""

    def __init__(self) -> None:
        self._tokens = _empty(MAX_RECORDED_TOKENS)

    def load(self, step: StepInputs) -> TokenSlots | None:
        """None: some row has so many tokens that they are better computed together."""
        if step.new_len.max() > MAX_DRAFTED_STEP_CPU:
            return None
        n_tokens, n_rows = int(step.new_len.sum()), len(step.new_len)
        tokens = self._tokens if n_tokens <= MAX_RECORDED_TOKENS else _empty(n_tokens)
        slots, rows = tokens.slots.numpy(), tokens.rows.numpy()
        ends = step.new_len.cumsum()
        starts = ends - step.new_len
        rows[0], rows[1 : 1 + n_rows], rows[1 + n_rows] = n_rows, starts, n_tokens
        slots[1] = NO_STATE
        slots[0, starts] = step.state_slots[:, 0]
        slots[1, ends - 1] = step.state_slots[:, 1]
        if step.state_slots.shape[1] > 2:
            inner = step.state_slots[:, 2:]
            row, nth = (inner != NO_STATE).nonzero()
            slots[1, starts[row] + nth] = inner[row, nth]
        return tokens


def _empty(n_tokens: int) -> TokenSlots:
    slots = torch.zeros(2, n_tokens, dtype=torch.int64)
    return TokenSlots(slots, torch.zeros(n_tokens + 2, dtype=torch.int64))
