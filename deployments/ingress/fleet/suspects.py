"""Finds the request that ends replicas: it goes on to no third one, and what was lost with it does.

A request that lost two replicas is suspect if it has input that native code reads (a grammar,
media), or if it got no further on the second one. Of those that lost the same two, suspects with
such input clear the others. One that is left alone ends. Several go on one at a time, each until it
has got on; the one on trial when a third replica dies ends.

Replicas die together where their node does: a request that comes to one that is dead already is not
its cause. Its word may be lost with it, too, so that only a few such deaths are forgiven.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.fleet.partial_output import PartialOutput

# Fewer tokens may have been on their way when a replica died: the next one says them again.
MIN_PROGRESS = 4
PROVEN_TOKENS = 32  # after which a trial is over
MAX_FORGIVEN = 2  # deaths of replicas that had not said that they have the request
MESSAGE = "Two replicas of the model died while they computed this request: no other one tries it"


class Verdict(Enum):
    CLEARED = auto()
    ON_TRIAL = auto()
    GUILTY = auto()


@dataclass(slots=True, eq=False)
class Trace:
    """One request's replicas so far. `verdict` is about the death of the one that it has now."""

    output: PartialOutput
    model: str
    replica: str | None = None
    lost: list[str | None] = field(default_factory=list)
    n_before: int = 0  # tokens, when its attempt began
    verdict: Verdict | None = None
    trial: asyncio.Lock | None = None  # that it holds
    n_forgiven: int = 0

    def begin(self, replica: str | None) -> None:
        self.replica, self.n_before, self.verdict = replica, self.output.n_tokens, None

    def progress(self) -> None:
        """It has got some tokens."""
        if self.trial is not None and self._gained >= PROVEN_TOKENS:
            self.end_trial()
            del self.lost[:-1]

    def end_trial(self) -> None:
        if self.trial is not None:
            self.trial.release()
            self.trial = None

    @property
    def is_suspect(self) -> bool:
        return self.output.has_native_input or self._gained < MIN_PROGRESS

    @property
    def _gained(self) -> int:
        return self.output.n_tokens - self.n_before


class Suspects:
    """Judges all requests of an ingress. Belongs to one event loop."""

    def __init__(self) -> None:
        self._traces: set[Trace] = set()
        self._trials: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by model

    @contextmanager
    def trace(self, output: PartialOutput, model: str) -> Iterator[Trace]:
        trace = Trace(output, model)
        self._traces.add(trace)
        try:
            yield trace
        finally:
            self._traces.remove(trace)
            trace.end_trial()

    async def died(self, trace: Trace, *, had_it: bool = True) -> None:
        """The replica of a request died. Returns when the request may go on. Raises Refused.

        `had_it`: whether the replica had said that it has the request.
        """
        if not had_it and trace.n_forgiven < MAX_FORGIVEN:
            trace.n_forgiven += 1
            return
        if trace.trial is not None:
            raise Refused.of_kind(ErrorKind.REPLICA_DIED, MESSAGE)
        if trace.lost and trace.verdict is None:
            self._judge(trace)
        trace.lost.append(trace.replica)
        if trace.verdict is Verdict.GUILTY:
            raise Refused.of_kind(ErrorKind.REPLICA_DIED, MESSAGE)
        if trace.verdict is Verdict.ON_TRIAL:
            trial = self._trials[trace.model]
            await trial.acquire()
            trace.trial = trial

    def _judge(self, trace: Trace) -> None:
        """All who lost the last two replicas together, at once: those who end do not wait for the
        others to be judged."""
        before = trace.lost[-1]
        together = [
            each
            for each in self._traces
            if each.model == trace.model and each.replica == trace.replica and before in each.lost
        ]
        suspects = [each for each in together if each.is_suspect]
        suspects = [each for each in suspects if each.output.has_native_input] or suspects
        for each in together:
            each.verdict = Verdict.CLEARED
        for each in suspects:
            each.verdict = Verdict.GUILTY if len(suspects) == 1 else Verdict.ON_TRIAL
