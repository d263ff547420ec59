"""The line that a sequence leaves in the log when it is over."""

import logging

import pytest

from deployments.telemetry import logs
from deployments.wire import ErrorKind, FinishReason, RequestError, TokenEvent


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (None, "sequence s was left"),
        (TokenEvent(token_ids=(1,)), "sequence s was left"),
        (TokenEvent(finish_reason=FinishReason.ABORT), "sequence s was left"),
        (TokenEvent(finish_reason=FinishReason.LENGTH), "sequence s ended: length"),
        (
            TokenEvent(
                finish_reason=FinishReason.ERROR,
                error=RequestError(ErrorKind.OUT_OF_MEMORY, "no memory"),
            ),
            "sequence s failed: no memory",
        ),
    ],
)
def test_a_sequence_says_how_it_ended(
    caplog: pytest.LogCaptureFixture, last: TokenEvent | None, said: str
) -> None:
    with caplog.at_level(logging.INFO, logger=logs.SERVE_LOG.name):
        logs.log_end("s", last)
    assert caplog.messages == [said]
