"""Every endpoint through a real `serve run`: strict types, and a stream that says the same."""

import json
from dataclasses import replace
from typing import Any

import anthropic
import httpx
import openai.types.responses
import openai.types.shared
import pytest
from pydantic import TypeAdapter

from tests.e2e.server import Server
from tests.e2e.shared.asked import ASKED, Asked, ask, ask_stream, check
from tests.ingress.protocols.every import PROTOCOLS as ALL
from tests.ingress.protocols.protocol import Said

PROTOCOLS = {protocol.path: protocol for protocol in ALL}


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.name)
def test_all_fits_the_sdks_types_strictly_and_the_stream_folds_to_the_answer(
    server: Server, asked: Asked
) -> None:
    protocol = PROTOCOLS[asked.path]
    unary = ask(server.url, asked)
    events = ask_stream(server.url, asked, **protocol.tells_all)
    check(asked.unary, unary)
    for event in events:
        check(asked.event, event)
    whole, folded = protocol.told(unary), protocol.fold(events)
    assert uncached(protocol.said(folded)) == uncached(protocol.said(whole))
    assert {**folded, "usage": None} == {**whole, "usage": None}


def uncached(said: Said) -> Said:
    """It without what differs from one asking to the next."""
    return replace(said, cached_tokens=0)


def test_lists_counts_and_errors_fit_their_types_too(server: Server) -> None:
    anthropics = {"anthropic-version": "2023-06-01"}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
    with httpx.Client(base_url=server.url, timeout=30) as client:
        for model in client.get("/v1/models").json()["data"]:
            strictly(openai.types.Model, model)
            strictly(openai.types.Model, client.get(f"/v1/models/{model['id']}").json())
        for model in client.get("/v1/models", headers=anthropics).json()["data"]:
            strictly(anthropic.types.ModelInfo, model)
        count = client.post("/v1/messages/count_tokens", json=body).json()
        strictly(anthropic.types.MessageTokensCount, count)
        counted = client.post("/v1/responses/input_tokens", json={"input": "Hi"}).json()
        strictly(openai.types.responses.InputTokenCountResponse, counted)
        refused = client.post("/v1/chat/completions", json={}).json()
        strictly(openai.types.shared.ErrorObject, refused["error"])
        unknown = client.post("/v1/messages", json={}).json()
        strictly(anthropic.types.ErrorResponse, unknown)


def strictly(kind: type[Any], value: object) -> None:
    TypeAdapter(kind).validate_json(json.dumps(value), strict=True)


@pytest.mark.parametrize(
    "asked",
    [asked for asked in ASKED if asked.unary == "Anthropic.Message"],
    ids=lambda asked: asked.name,
)
def test_the_anthropic_sdk_accumulates_the_stream(server: Server, asked: Asked) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        body: dict[str, Any] = {**asked.body}
        greedy = {"temperature": body.pop("temperature")}  # no argument of this SDK
        unary = client.messages.create(**body, extra_body=greedy)
        with client.messages.stream(**body, extra_body=greedy) as stream:
            final = stream.get_final_message()
    assert [block.type for block in final.content] == [block.type for block in unary.content]
    assert (final.stop_reason, final.stop_sequence) == (unary.stop_reason, unary.stop_sequence)
    assert final.usage.output_tokens == unary.usage.output_tokens
