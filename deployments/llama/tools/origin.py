"""Checks who may call the tools: programs, and pages of this server. Other origins are refused.

The host name must be known, too: another page's name could be made to resolve to this server.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import Request

from deployments.ingress.host_names import is_known
from deployments.wire import ErrorKind, Refused

OWN_SITES = (None, "same-origin", "none")  # values of Sec-Fetch-Site
DEFAULT_PORTS = {"http": 80, "https": 443}


def check_origin(request: Request, hosts: Collection[str]) -> None:
    """Raises Refused."""
    given = request.headers.getlist("origin")
    host = request.headers.get("host", "")
    own = all(_is_own(origin, host) for origin in given)
    if not own or request.headers.get("sec-fetch-site") not in OWN_SITES:
        raise _forbidden("The tools may not be reached from pages of other origins")
    if not is_known(host, hosts):
        raise _forbidden("The tools may not be reached by this host name")


def _is_own(origin: str, host: str) -> bool:
    try:
        theirs, ours = urlsplit(origin), urlsplit(f"{urlsplit(origin).scheme}://{host}")
        default = DEFAULT_PORTS[theirs.scheme]
        return (theirs.hostname, theirs.port or default) == (ours.hostname, ours.port or default)
    except (ValueError, KeyError):
        return False


def _forbidden(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.PERMISSION, message)
