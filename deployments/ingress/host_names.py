"""The names that a server without keys answers to.

A page of another site may have its own name resolve to this machine, and its scripts would then
read the answers (DNS rebinding). Addresses can't be made to resolve, so that these are all known.
"""

import asyncio
from collections.abc import Callable, Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

EVERYWHERE = ("0.0.0.0", "::")


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address, localhost, or one of the names, in lower case."""
    name = _name_in(host)
    if name == "localhost" or name in names:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _name_in(host: str) -> str:
    """Returns the name without its port, in lower case; "" for what is no name."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class HostNames:
    """The names of a server: `names`, and the host on which it listens.

    The host is asked for once, in a thread. A server that listens everywhere was opened by its
    operator to whoever finds it.
    """

    def __init__(self, names: Collection[str], listens_at: Callable[[], str | None]) -> None:
        self._names = names
        self._listens_at = listens_at
        self._own: str | None = None

    async def know(self, host: str) -> bool:
        name = _name_in(host)
        # All browsers know that these are this machine.
        if is_known(host, self._names) or name.endswith(".localhost"):
            return True
        if self._own is None:
            self._own = (await asyncio.to_thread(self._listens_at) or "").lower()
        return self._own in EVERYWHERE or name == self._own != ""
