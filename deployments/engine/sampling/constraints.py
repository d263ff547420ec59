"""Bans all tokens but those that may come next: by a constraint, at the end of a thought whose
budget is spent, and by the form of a transcript.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.contract.speech_rules import TranscriptParams
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BANNED, BaseSamplingStrategy
from deployments.engine.tasks.constraint import Bitmask
from deployments.engine.tasks.task import Task
from deployments.engine.tasks.thinking_tracker import ThinkingTracker
from deployments.engine.transfer import to_device


class ConstraintStrategy(BaseSamplingStrategy):
    """Bans every token that a row's constraint does not allow next.

    It collects the masks, whose computation began before the forward pass.
    """

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        masked = [row for row in rows.selected if rows.tasks[row].constraint.is_masking]
        if masked:
            index = to_device(np.array(masked, dtype=np.int64), logits.device)
            masks = np.stack(
                [rows.tasks[row].constraint.mask(rows.n_drafted_before(row)) for row in masked]
            )
            logits[index] = logits[index].masked_fill_(~_allowed(masks, logits), BANNED)


def _allowed(masks: Bitmask, logits: Tensor) -> Tensor:
    """The bits of the masks [rows, vocab / 32] as one bool a logit. [rows, vocab]"""
    vocab = logits.shape[1]
    octets = to_device(masks.view(np.uint8), logits.device)  # [rows, vocab / 8]
    bits = octets[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=logits.device) & 1
    allowed = bits.flatten(1)[:, :vocab].bool()
    return torch.nn.functional.pad(allowed, (0, vocab - allowed.shape[1]))


class ThinkingStrategy(BaseSamplingStrategy):
    """Ends thinking whose budget is spent, or that a client has ended.

    It bans every token but the next one of the end mark, whatever was banned. Only a constraint can
    put that off, as long as it does not allow the mark.
    """

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        tasks = rows.tasks
        for row in [row for row in rows.selected if tasks[row].request.thinking is not None]:
            task, n_drafted = tasks[row], rows.n_drafted_before(row)
            forced = _forced(task, n_drafted)
            if forced is not None and (rows.is_guess or task.constraint.allows(forced, n_drafted)):
                logits[row] = BANNED
                logits[row, forced] = 0


def _forced(task: Task, n_drafted: int) -> int | None:
    """The only token that may come behind the task's first `n_drafted` drafted ones."""
    state, n = task.sampling_state, task.n_tokens
    if state.thinking is None:
        assert task.request.thinking is not None
        state.thinking = ThinkingTracker(task.request.thinking)
    first_unread = task.n_prompt + state.thinking.n_read
    state.thinking.read(task.tokens[first_unread:n].tolist())
    ahead = state.thinking.copy() if n_drafted else state.thinking
    ahead.read(task.tokens[n : n + n_drafted].tolist())
    return ahead.forced(state.is_thinking_over)


class TranscriptStrategy(BaseSamplingStrategy):
    """Keeps transcripts to the form of Whisper: text between pairs of times, which never go back.

    It bans tokens by section 3 of Radford et al. 2022, "Robust Speech Recognition via Large-Scale
    Weak Supervision", and by the rules of the authors' own decoder.
    """

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_is_transcript, "transcript"):
            params, task = rows.params[row].transcript, rows.tasks[row]
            assert params is not None
            said = task.tokens[task.n_prompt : rows.n_tokens_before(row)]
            _keep_form(logits[row], said, params)


def _is_transcript(params: SamplingParams) -> bool:
    return params.transcript is not None


@lru_cache(maxsize=16)
def _on(device: torch.device, ids: tuple[int, ...]) -> Tensor:
    return torch.tensor(ids, dtype=torch.int64, device=device)


def _keep_form(logits: Tensor, said: NDArray[np.int64], params: TranscriptParams) -> None:
    first_time = params.first_time
    logits[_on(logits.device, params.banned)] = BANNED
    if not len(said):
        logits[_on(logits.device, params.banned_first)] = BANNED
    logits[params.no_times] = BANNED
    is_time = said >= first_time
    if not len(said):
        logits[:first_time] = BANNED
        if params.max_first_time is not None:
            logits[first_time + params.max_first_time + 1 :] = BANNED
    elif is_time[-1] and (len(said) < 2 or is_time[-2]):
        logits[first_time:] = BANNED
    elif is_time[-1]:
        logits[: params.end] = BANNED
    times = said[is_time]
    if len(times):
        may_repeat = bool(is_time[-1]) and len(said) > 1 and not is_time[-2]
        logits[first_time : int(times[-1]) + (not may_repeat)] = BANNED
    # Times that are more likely together than any text are taken for a time.
    probabilities = logits.log_softmax(0)
    is_time_next = probabilities[first_time:].logsumexp(0) > probabilities[:first_time].max()
    logits[:first_time].masked_fill_(is_time_next, BANNED)  # on the device: nobody waits for it
