"""A protocol is a schema and a builder: this one streams NDJSON, and imports no other protocol."""

import asyncio
import json
from collections.abc import Sequence

import httpx
from starlette.types import ASGIApp

from deployments.contract.errors import RequestError
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import SamplingParams
from deployments.ingress.generation.plan import Plan, PlanOptions
from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.http.app import protocol_app
from deployments.ingress.http.errors import ERRORS
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.sse import StreamType
from deployments.ingress.http.validation import parse
from deployments.ingress.metrics import Metrics
from deployments.ingress.routes.service import Operation, Service
from deployments.text.chat.prompt import Prompt
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import ScriptedEngine, says
from tests.text.cards import card

TEXT = "Hello there"


class SayRequest(Strict):
    model: str | None = None
    text: str
    stream: bool | None = True
    is_heavy: bool = False


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


class SayBuilder(ResponseBuilder[SayRequest]):
    stream_type = StreamType("application/x-ndjson", keep_alive=b"\n")

    def prepare(
        self, request: SayRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        return Plan(
            card=card,
            tokenizer=tokenizer,
            response_id="say",
            prompts=[Prompt(ids=tokenizer.encode(request.text, add_special_tokens=True))],
            sampling=SamplingParams(),
            prompt_param="text",
            options=PlanOptions(max_tokens=64),
        ).generations()

    def format_stream_start(self) -> bytes:
        return b""

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        return line(said=delta.text) if delta.text else b""

    def format_stream_end(self, usage: Usage) -> bytes:
        return line(tokens=usage.output_tokens)

    def format_stream_error(self, error: RequestError) -> bytes:
        return line(error=error.message)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        return line(said=choices[0].text, tokens=usage.output_tokens)


def envelope(error: RequestError, request_id: str) -> tuple[int, object]:
    return ERRORS[error.kind].openai.status, {"error": error.message, "field": error.param}


SAY = Operation(
    name="say",
    path="/say",
    body=SayRequest,
    parse=lambda body: parse(SayRequest, body),
    builder=lambda context: SayBuilder(),
)


def app() -> ASGIApp:
    service = Service(engine=ScriptedEngine(says(TEXT), card()), metrics=Metrics())
    return protocol_app([service.route(SAY)], envelope)


def asked(**fields: object) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app())
        async with httpx.AsyncClient(transport=transport, base_url="http://manta") as client:
            return await client.post("/say", json=fields)

    return asyncio.run(ask())


def test_a_protocol_of_its_own_streams_ndjson_and_folds_to_one_body() -> None:
    answer = asked(text="Hi")
    assert answer.headers["content-type"] == "application/x-ndjson"
    *parts, last = map(json.loads, answer.text.splitlines())
    whole = asked(text="Hi", stream=False).json()
    assert whole == {"said": "".join(part["said"] for part in parts), **last}
    assert whole["said"] == TEXT
    wrong = asked(text=3)
    assert (wrong.status_code, wrong.json()["field"]) == (400, "text")
