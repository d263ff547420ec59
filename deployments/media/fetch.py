"""Fetches a file from a URL: only from hosts that an operator allows, never from a private address.
A `file://` URL is read below the one folder that an operator allows, whatever its path says.

A name is resolved once, and the connection goes to an address that was checked: what the name means
a moment later changes nothing. Each redirect is checked in the same way.
"""

import os
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from urllib.parse import SplitResult, urljoin, urlsplit

MAX_REDIRECTS = 3
MAX_URL_LENGTH = 8192
PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)
CHUNK_BYTES = 1 << 16
NAT64 = IPv6Network("64:ff9b::/96")
ANY_HOST = "*"
Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Sequence[str]]


class MediaFetchError(Exception):
    """The URL is refused, or can't be fetched; the message says why."""


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """A URL that was checked, with the address that its host has."""

    url: SplitResult
    host: str
    port: int
    address: str


class Fetcher:
    """`hosts` are as `MediaSettings` says. An address among them may be a private one."""

    def __init__(
        self, hosts: Sequence[str], timeout_s: float, max_bytes: int, resolve: Resolve = resolve
    ) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._resolve = resolve

    def check(self, url: str) -> None:
        """Whether the URL may be fetched, as far as it says itself. Raises MediaFetchError."""
        self._host_of(_split(url))

    def fetch(self, url: str) -> bytes:
        """Blocks for the timeout at most, but for the name server. Raises MediaFetchError."""
        with _deadline(self._timeout_s) as on_late:
            for _ in range(MAX_REDIRECTS + 1):
                target = self._target(url)
                found = self._get(target, on_late)
                if isinstance(found, bytes):
                    return found
                url = urljoin(url, found)
        raise MediaFetchError(f"is redirected more than {MAX_REDIRECTS} times")

    def _target(self, url: str) -> FetchTarget:
        split = _split(url)
        host, port = self._host_of(split)
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError):
            raise MediaFetchError(f"is at {host!r}, a name that can't be resolved") from None
        if not addresses:
            raise MediaFetchError(f"is at {host!r}, a name without an address")
        if not self._is_listed_address(host, port) and not all(map(is_public, addresses)):
            raise MediaFetchError(f"is at {host!r}, which has an address that is not public")
        return FetchTarget(split, host, port, addresses[0])

    def _host_of(self, url: SplitResult) -> tuple[str, int]:
        try:
            host, port = (url.hostname or "").lower(), url.port or PORTS[url.scheme]
        except ValueError:
            raise MediaFetchError("has a port that is no number") from None
        if not host:
            raise MediaFetchError("names no host")
        allowed = self._hosts & _names(host, port, ANY_HOST)
        if not allowed:
            raise MediaFetchError(f"is at {host}:{port}, and this server may not fetch from there")
        return host, port

    def _is_listed_address(self, host: str, port: int) -> bool:
        """Whether the operator wrote this very address."""
        return _address(host) is not None and bool(self._hosts & _names(host, port))

    def _get(self, target: FetchTarget, on_late: "Aborts") -> bytes | str:
        """The body, or where the answer redirects to."""
        connection = _Connection(target, self._timeout_s)
        try:
            with on_late.aborting(connection):
                connection.request("GET", _path(target.url), headers=_headers(target))
                with connection.getresponse() as response:
                    found = self._read(response)
                if on_late.is_late:  # and what was read is cut off
                    raise TimeoutError
                return found
        except (OSError, HTTPException, ValueError) as error:
            if on_late.is_late:
                raise MediaFetchError(f"takes more than {self._timeout_s:g} seconds") from None
            raise MediaFetchError(f"can't be fetched: {type(error).__name__}") from None
        finally:
            connection.close()

    def _read(self, response: HTTPResponse) -> bytes | str:
        location = response.getheader("location")
        if response.status in REDIRECTS and location:
            return location
        if response.status != 200:
            raise MediaFetchError(f"is answered with the status {response.status}")
        declared, data = response.length or 0, bytearray()
        if declared > self._max_bytes:
            raise self._too_large()
        while chunk := response.read1(CHUNK_BYTES):
            data += chunk
            if len(data) > self._max_bytes:
                raise self._too_large()
        if len(data) < declared:  # read1 ends without an error where the connection does
            raise MediaFetchError("is cut off")
        return bytes(data)

    def _too_large(self) -> MediaFetchError:
        return MediaFetchError(f"has more than {self._max_bytes:,} bytes, the most that is allowed")


def _names(host: str, port: int, *others: str) -> set[str]:
    """How an operator may write this host. Without a port the usual two are meant."""
    name = f"[{host}]" if ":" in host else host
    usual = {host, *others} if port in PORTS.values() else set()
    return usual | {f"{name}:{port}"}


def _split(url: str) -> SplitResult:
    if len(url) > MAX_URL_LENGTH:
        raise MediaFetchError(f"is longer than {MAX_URL_LENGTH} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise MediaFetchError("has characters that no URL has")
    try:
        split = urlsplit(url)
    except ValueError:
        raise MediaFetchError("is no URL") from None
    if split.scheme not in PORTS:
        raise MediaFetchError("is neither a data: URL nor a web address")
    if split.username is not None or split.password is not None:
        raise MediaFetchError("must have no user name or password")
    return split


def _address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def is_public(text: str) -> bool:
    """Whether an address is one of the internet. Those that carry another one are as that is."""
    address = _address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        carried = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            carried = IPv4Address(int(address) & 0xFFFFFFFF)
        if carried is not None:
            address = carried
        elif address.teredo is not None:
            return False
    return address is not None and address.is_global and not address.is_multicast


def _path(url: SplitResult) -> str:
    query = f"?{url.query}" if url.query else ""
    return (url.path or "/") + query


def _headers(target: FetchTarget) -> dict[str, str]:
    return {
        "Host": target.url.netloc,
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }


class _Connection(HTTPConnection):
    """A connection to the address of a target. With https the certificate has to be its host's."""

    def __init__(self, target: FetchTarget, timeout_s: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout_s)
        self._target = target
        self._socket: socket.socket | None = None  # which `sock` forgets once an answer begins

    def connect(self) -> None:
        address = (self._target.address, self._target.port)
        plain = socket.create_connection(address, self.timeout)
        self.sock = plain
        if self._target.url.scheme == "https":
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(plain, server_hostname=self._target.host)
        self._socket = self.sock

    def abort(self) -> None:
        opened = self._socket or self.sock
        if opened is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


class Aborts:
    """Ends what a thread waits for when its time is over, wherever it waits."""

    def __init__(self) -> None:
        self.is_late = False
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    @contextmanager
    def aborting(self, connection: _Connection) -> Iterator[None]:
        with self._lock:
            if self.is_late:
                raise TimeoutError
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def end(self) -> None:
        with self._lock:
            self.is_late = True
            if self._connection is not None:
                self._connection.abort()


@contextmanager
def _deadline(timeout_s: float) -> Iterator[Aborts]:
    aborts = Aborts()
    timer = threading.Timer(timeout_s, aborts.end)
    timer.start()
    try:
        yield aborts
    finally:
        timer.cancel()


class LocalFileError(Exception):
    """The path is refused; the message says why."""


def read_local(folder: str, path: str, max_bytes: int) -> bytes:
    """Follows links only as far as they stay in the folder. Raises LocalFileError."""
    root = Path(folder).resolve()
    try:
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise LocalFileError("is not below the media folder")
        descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError, RuntimeError):
        raise LocalFileError("is no file of the media folder") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LocalFileError("is no file of the media folder")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise LocalFileError(f"has more than {max_bytes:,} bytes, the most that is allowed")
    return data
