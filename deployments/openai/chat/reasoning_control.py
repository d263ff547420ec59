"""llama-server's control endpoint, which ends the thinking of a running chat completion."""

import asyncio
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
        answers = await asyncio.gather(
            *(
                cluster.broadcast(m.application, MODEL_DEPLOYMENT, "end_thoughts", command.id)
                for m in models
                if m.state in UP_STATES
            )
        )
        return JSONResponse({"success": True} if any(map(any, answers)) else UNKNOWN)

    return DocumentedRoute(
        path,
        control,
        methods=["POST"],
        name="chat_completions_control",
        tag="Generation",
        body=ReasoningControl,
    )
