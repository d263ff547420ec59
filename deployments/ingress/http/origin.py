"""Checks who may call what pages of strangers must not: programs, and pages of this server.

Another page's name could be made to resolve to this server: so the host name must be known, too.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import Request

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.host_names import is_known

OWN_SITES = (None, "same-origin", "none")  # values of Sec-Fetch-Site
DEFAULT_PORTS = {"http": 80, "https": 443}


def check_origin(request: Request, what: str) -> None:
    """`what`, as in "The tools", is kept from pages of other origins. Raises Refused."""
    if not is_own_page(request):
        raise _forbidden(f"{what} may not be reached from pages of other origins")


def is_own_page(request: Request) -> bool:
    """Whether it is a program's, or that of a page of this server."""
    given, host = request.headers.getlist("origin"), request.headers.get("host", "")
    is_own = all(_is_own(origin, host) for origin in given)
    return is_own and request.headers.get("sec-fetch-site") in OWN_SITES


def check_host(request: Request, hosts: Collection[str], what: str) -> None:
    """Raises Refused for a name that is neither an address, nor localhost, nor in `hosts`."""
    if not is_known(request.headers.get("host", ""), hosts):
        raise _forbidden(
            f"{what} may not be reached by this host name: `hosts` lists those that may"
        )


def _is_own(origin: str, host: str) -> bool:
    try:
        theirs, ours = urlsplit(origin), urlsplit(f"{urlsplit(origin).scheme}://{host}")
        default = DEFAULT_PORTS[theirs.scheme]
        return (theirs.hostname, theirs.port or default) == (ours.hostname, ours.port or default)
    except (ValueError, KeyError):
        return False


def _forbidden(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.PERMISSION, message)
