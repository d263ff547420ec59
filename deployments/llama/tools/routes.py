"""GET and POST /tools: the built-in tools, which are off unless a folder is set."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from weakref import WeakValueDictionary

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.ingress.generation.inflight_limit import InflightLimit
from deployments.ingress.http.body import parse_json, read_body
from deployments.ingress.http.clients import connection_of
from deployments.ingress.http.origin import check_host, check_origin
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.sse import encode
from deployments.ingress.http.validation import parse
from deployments.ingress.settings import IngressSettings
from deployments.llama.server.unsupported import feature_disabled
from deployments.llama.tools.files import EDIT_FILE, READ_FILE, WRITE_FILE
from deployments.llama.tools.folder import Folder, ToolError
from deployments.llama.tools.information import GET_DATETIME, GET_INFO
from deployments.llama.tools.search import FILE_GLOB_SEARCH, GREP_SEARCH
from deployments.llama.tools.search_process import SEARCHES, search
from deployments.llama.tools.settings import ToolSettings
from deployments.llama.tools.tool import Answer, BuiltInTool, Params, ToolContext
from deployments.serving.detached_tasks import create_detached_task

WHAT = "The tools"
MAX_CONCURRENT_CALLS = 4
MAX_CLIENT_CALLS = 3  # at once, so that one client does not hold up all others
MAX_OPEN_CALLS = 64  # that run or wait
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


class ToolRequest(Strict):
    tool: str
    params: dict[str, JsonValue] = Field(default_factory=dict)
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
        self._open = InflightLimit(MAX_OPEN_CALLS)
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._of_clients: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def list(self, request: Request) -> Response:
        self._check_caller(request)
        return _json([tool.described() for tool in TOOLS.values()])

    async def call(self, request: Request) -> Response:
        self._check_caller(request)
        client = connection_of(request, sees_peers=self._settings.sees_peers)
        leave = self._open.acquire(client)
        try:
            body = await read_body(request, self._settings)
            call = parse(ToolRequest, parse_json(body))
            tool = _find(call)
            params = _params(tool, call)
        except BaseException:
            leave()
            raise
        work = partial(self._answer, tool, params, request)
        # A thread goes on when its client has left: it holds its slots until it has ended.
        return _json(await asyncio.shield(create_detached_task(self._run(client, work, leave))))

    def _check_caller(self, request: Request) -> None:
        check_origin(request, WHAT)
        check_host(request, self._hosts, WHAT)

    async def _run(
        self, client: str, work: Callable[[], Answer], leave: Callable[[], None]
    ) -> Answer:
        own = self._of_clients.setdefault(client, asyncio.Semaphore(MAX_CLIENT_CALLS))
        try:
            async with own, self._slots:
                return await asyncio.to_thread(work)
        finally:
            leave()

    def _answer(self, tool: BuiltInTool[Params], params: Params, request: Request) -> Answer:
        try:
            if tool.name in SEARCHES:
                return search(tool.name, params.model_dump(), self._context(request))
            return tool.call(params, self._context(request))
        except ToolError as failure:
            return {"error": str(failure)}

    def _context(self, request: Request) -> ToolContext:
        """Returns the context from the headers only.

        The params come from the model and do not change it.
        """
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
    return parse(tool.params, given, "params")


def _json(value: object) -> Response:
    return Response(encode(value), media_type="application/json")
