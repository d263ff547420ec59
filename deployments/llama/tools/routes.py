"""GET and POST /tools: the built-in tools, which are off unless a folder is set."""

import asyncio
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.ingress.http.body import parse_json, read_body
from deployments.ingress.http.sse import encode
from deployments.ingress.http.validation import parse, refusal
from deployments.ingress.settings import IngressSettings
from deployments.llama.server.unsupported import feature_disabled
from deployments.llama.tools.files import EDIT_FILE, READ_FILE, WRITE_FILE
from deployments.llama.tools.folder import Folder, ToolError
from deployments.llama.tools.information import GET_DATETIME, GET_INFO
from deployments.llama.tools.origin import check_origin
from deployments.llama.tools.search import FILE_GLOB_SEARCH, GREP_SEARCH
from deployments.llama.tools.settings import ToolSettings
from deployments.llama.tools.tool import Answer, BuiltInTool, Params, ToolContext
from deployments.wire import ErrorKind, Refused, refused

MAX_CONCURRENT_CALLS = 4
TOOLS: Mapping[str, BuiltInTool[Params]] = {
    tool.name: tool  # type: ignore[misc]
    for tool in (
        READ_FILE,
        FILE_GLOB_SEARCH,
        GREP_SEARCH,
        WRITE_FILE,
        EDIT_FILE,
        GET_INFO,
        GET_DATETIME,
    )
}


class ToolRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    tool: str
    params: dict[str, JsonValue] = {}
    stream: bool | None = None


def tool_routes(tools: ToolSettings | None, settings: IngressSettings) -> list[Route]:
    if tools is None:
        return [Route("/tools", feature_disabled, methods=["GET", "POST"], include_in_schema=False)]
    built_in = BuiltInTools(tools, settings)
    return [
        Route("/tools", built_in.list, methods=["GET"]),
        Route("/tools", built_in.call, methods=["POST"]),
    ]


class BuiltInTools:
    def __init__(self, tools: ToolSettings, settings: IngressSettings) -> None:
        self._hosts = tools.hosts
        self._folder = Folder(tools.folder)
        self._settings = settings
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    async def list(self, request: Request) -> Response:
        check_origin(request, self._hosts)
        return _json([tool.described() for tool in TOOLS.values()])

    async def call(self, request: Request) -> Response:
        check_origin(request, self._hosts)
        body = await read_body(request, self._settings)
        call = parse(ToolRequest, parse_json(body))
        tool = _find(call)
        params = _params(tool, call)
        async with self._slots:
            return _json(await asyncio.to_thread(self._answer, tool, params, request))

    def _answer(self, tool: BuiltInTool[Params], params: Params, request: Request) -> Answer:
        try:
            return tool.call(params, self._context(request))
        except ToolError as failure:
            return {"error": str(failure)}

    def _context(self, request: Request) -> ToolContext:
        """From the headers only: the params come from the model and do not change it."""
        headers = request.headers
        if "x-tool-runtime" in headers:
            raise refused("`x-tool-runtime`: this server has no other runtimes", "x-tool-runtime")
        if headers.get("x-resp-type") not in (None, "base64"):
            raise refused("`x-resp-type` must be base64", "x-resp-type")
        cwd = self._folder.path(headers.get("x-tool-cwd", ""))
        as_base64 = headers.get("x-resp-type") == "base64"
        return ToolContext(folder=self._folder, cwd=cwd, as_base64=as_base64)


def _find(call: ToolRequest) -> BuiltInTool[Params]:
    if call.tool not in TOOLS:
        message = f"There is no tool {call.tool[:80]!r}"
        raise Refused.of_kind(ErrorKind.NOT_FOUND, message, "tool")
    if call.stream:
        raise refused(f"`stream`: the tool {call.tool!r} does not stream", "stream")
    return TOOLS[call.tool]


def _params(tool: BuiltInTool[Params], call: ToolRequest) -> Params:
    given = {name: value for name, value in call.params.items() if value is not None}
    try:
        return tool.params.model_validate(given)
    except ValidationError as error:
        inner = refusal(error, given).error
        raise refused(f"params: {inner.message}", f"params.{inner.param}") from None


def _json(value: object) -> Response:
    return Response(encode(value), media_type="application/json")
