"""The line that the sequences of a request leave in the log when all are over."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.events import FinishReason, TokenEvent
from deployments.telemetry.logs import SERVE_LOG, SequenceLog, bind_request_id

STOP = TokenEvent(finish_reason=FinishReason.STOP)
LENGTH = TokenEvent(finish_reason=FinishReason.LENGTH)
LEFT = TokenEvent(finish_reason=FinishReason.ABORT)
FAILED = TokenEvent(
    finish_reason=FinishReason.ERROR,
    error=RequestError(ErrorKind.OUT_OF_MEMORY, "no memory"),
)


@pytest.mark.parametrize(
    ("lasts", "said"),
    [
        ([None], "sequence s0 was left"),
        ([TokenEvent(token_ids=(1,))], "sequence s0 was left"),
        ([LEFT], "sequence s0 was left"),
        ([LENGTH], "sequence s0 ended: length"),
        ([FAILED], "sequence s0 failed: no memory"),
        ([STOP] * 2000, "2000 sequences, the first one s0: 2000 stop"),
        (
            [STOP, LENGTH, STOP, FAILED, LEFT],
            "5 sequences, the first one s0: 2 stop, 1 length, 1 failed, 1 left: no memory",
        ),
    ],
)
@pytest.mark.parametrize("are_in_turn", [True, False])
def test_the_sequences_of_a_request_say_in_one_line_how_they_ended(
    caplog: pytest.LogCaptureFixture,
    lasts: Sequence[TokenEvent | None],
    said: str,
    are_in_turn: bool,
) -> None:
    async def run() -> None:
        log = SequenceLog(pause_s=0.0)
        bind_request_id("request")
        names = [f"s{number}" for number in range(len(lasts))]
        if not are_in_turn:
            for name in names:
                log.begin(name)
        for name, last in zip(names, lasts, strict=True):
            if are_in_turn:
                log.begin(name)
            log.end(name, last)
        bind_request_id("other")
        log.begin("t")
        log.end("t", STOP)
        await asyncio.sleep(0.01)

    with caplog.at_level(logging.INFO, logger=SERVE_LOG.name):
        asyncio.run(run())
    assert caplog.messages == [said, "sequence t ended: stop"]
