"""A real MCP server, of the protocol's own SDK: sessions, a token, and CORS for one page."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.middleware.cors import CORSMiddleware

from tests.listening import listening

TOKEN = "token-of-the-harbour"
RESOURCE = "hours.txt"
HOURS = "The harbour opens at nine."


@dataclass
class Harbour:
    """`calls`: for which places its tool was called."""

    url: str = ""
    calls: list[str] = field(default_factory=list)

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="page", scopes=[]) if token == TOKEN else None

    def made(self) -> MCPServer[object]:
        auth = AuthSettings(issuer_url=AnyHttpUrl("https://example.org"), resource_server_url=None)
        server = MCPServer[object]("harbour", token_verifier=self, auth=auth, log_level="ERROR")

        @server.tool()
        def read_tide(place: str) -> str:
            """How high the water stands."""
            self.calls.append(place)
            return f"2.4 m at {place}, and it rises."

        @server.prompt(title="Plan a day")
        def plan(place: str) -> str:
            """A day by the sea."""
            return f"Plan a day at {place}."

        @server.resource("harbour://hours", name=RESOURCE, mime_type="text/plain")
        def hours() -> str:
            return HOURS

        return server


@contextmanager
def open_harbour(port: int, page: str) -> Iterator[Harbour]:
    """page: the one origin whose pages may ask it."""
    harbour = Harbour()
    app = harbour.made().streamable_http_app(
        transport_security=TransportSecuritySettings(
            allowed_hosts=[f"127.0.0.1:{port}"], allowed_origins=[page]
        )
    )
    for_page = CORSMiddleware(
        app,
        allow_origins=[page],
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version"],
        expose_headers=["Mcp-Session-Id"],
    )
    with listening(for_page, port) as url:
        harbour.url = f"{url}/mcp"
        yield harbour
