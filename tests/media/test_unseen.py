"""Media that a model can't see are described where a tool returned them or the operator says so."""

from dataclasses import replace
from typing import Any

import pytest

from tests.media.serving import ask, blind, data_url, seeing
from tests.media.test_requests import (
    CHAT,
    IN_EACH_PROTOCOL,
    MESSAGES,
    PICTURE,
    RESPONSES,
    SHOWN,
    block,
    messages,
    only,
    picture,
    shown,
)

CALL = {"id": "c", "type": "function", "function": {"name": "see", "arguments": "{}"}}
RETURNED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        CHAT,
        {
            "messages": [
                {"role": "user", "content": "A"},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": [picture()]},
            ]
        },
    ),
    "responses": (
        RESPONSES,
        {
            "input": [
                {"role": "user", "content": "A"},
                {"type": "function_call", "call_id": "c", "name": "see", "arguments": "{}"},
                {
                    "type": "function_call_output",
                    "call_id": "c",
                    "output": [{"type": "input_image", "image_url": data_url(PICTURE)}],
                },
            ]
        },
    ),
    "messages": (
        MESSAGES,
        {
            **messages(),
            "messages": [
                {"role": "user", "content": "A"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t", "name": "see", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": [block()]}],
                },
            ],
        },
    ),
}


@pytest.mark.parametrize("rule", [None, "describe", "refuse"])
@pytest.mark.parametrize("protocol", RETURNED)
def test_a_model_that_reads_text_is_told_of_what_a_tool_has_shown(
    protocol: str, rule: str | None
) -> None:
    path, body = RETURNED[protocol]
    response, requests = ask(path, body, replace(blind(), unseen_media=rule))
    assert response.status_code == (400 if rule == "refuse" else 200), response.text
    if rule != "refuse":
        assert "[Here is an image that can't be shown" in shown(only(requests))
        assert "is described, and not shown" in response.headers["x-manta-warning"]
    seen = only(ask(path, body, replace(seeing(), unseen_media=rule))[1])
    assert SHOWN in shown(seen)


def test_what_users_send_is_described_where_the_operator_says_so() -> None:
    path, body = IN_EACH_PROTOCOL["chat"]
    response, requests = ask(path, body, replace(blind(), unseen_media="describe"))
    assert response.status_code == 200
    assert "user\nA\n[Here is an image" in shown(only(requests))
