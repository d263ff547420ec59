"""llama-server's control endpoint, which ends the thinking of a running chat completion.

The ingress that holds the completion notes the order before the model's replicas hear of it: one
that dies with the order takes nothing along, and the next one is asked for no more thinking.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.ingress.fleet.cluster import UP_STATES, Cluster, find_model
from deployments.ingress.http.body import parse_json, read_command
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.schema import ModelName, Strict
from deployments.ingress.http.validation import parse
from deployments.ingress.settings import IngressSettings
from deployments.model.settings import MODEL_DEPLOYMENT

# Applications, and the deployments in them, whose chats can be told to end their thinking.
INGRESSES = ("openai", "llama")
UNKNOWN = {"success": False, "message": "no active completion for this id"}


class ReasoningControl(Strict):
    """`id` is that of a completion whose request has `reasoning_control`: true."""

    id: Annotated[str, Field(min_length=1, max_length=128)]
    action: Literal["reasoning_end"]
    model: ModelName = None


def reasoning_control_route(
    cluster: Cluster, settings: IngressSettings, path: str = "/v1/chat/completions/control"
) -> Route:
    async def control(request: Request) -> Response:
        body = await read_command(request, settings)
        command = parse(ReasoningControl, parse_json(body))
        statuses = await cluster.statuses()
        models = statuses if command.model is None else [find_model(statuses, command.model)]
        ingresses = [(ingress, ingress) for ingress in INGRESSES]
        runners = [(m.application, MODEL_DEPLOYMENT) for m in models if m.state in UP_STATES]
        names = [m.name for m in models]
        is_noted = await _end_thoughts(cluster, ingresses, command.id, names)
        is_ended = await _end_thoughts(cluster, runners, command.id)
        return JSONResponse({"success": True} if is_noted or is_ended else UNKNOWN)

    return DocumentedRoute(
        path,
        control,
        methods=["POST"],
        name="chat_completions_control",
        tag="Generation",
        body=ReasoningControl,
    )


async def _end_thoughts(cluster: Cluster, told: Sequence[tuple[str, str]], *args: object) -> bool:
    """Whether a replica of these deployments, which come with their applications, has it."""
    answers = await asyncio.gather(
        *(cluster.broadcast(*deployment, "end_thoughts", *args) for deployment in told)
    )
    return any(map(any, answers))
