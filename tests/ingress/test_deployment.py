"""Events of Serve beneath an ingress, which its application is not to see."""

import asyncio
import logging

import pytest
from ray.exceptions import TaskCancelledError
from starlette.types import Message

from deployments.ingress.deployment import told_of_leaving
from tests.ingress.edge import every


def test_a_client_that_leaves_while_its_body_is_read_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent: list[Message] = []
    parts: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Message:
        if parts:
            return parts.pop()
        raise TaskCancelledError  # as Serve's Python proxy has it

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }

    async def ask() -> None:
        await told_of_leaving(every()["openai"])(scope, receive, send)

    with caplog.at_level(logging.INFO):
        asyncio.run(ask())
    assert sent == []
    assert "POST /v1/completions 499" in caplog.text
    assert "Traceback" not in caplog.text
