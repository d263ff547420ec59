"""Keeps transcripts to the form of Whisper: text between pairs of times, which never go back."""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.contract.speech_rules import TranscriptParams
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BANNED, BaseSamplingStrategy


class TranscriptStrategy(BaseSamplingStrategy):
    """Bans tokens by section 3 of Radford et al. 2022, "Robust Speech Recognition via Large-Scale
    Weak Supervision", and by the rules of the authors' own decoder."""

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
