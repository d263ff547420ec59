"""The settings of an ingress of any protocol; read once, at the root."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deployments.ingress.host_names import HostNames
from deployments.ingress.stopping import Stopping
from deployments.media.settings import MediaSettings

BODY_LIMIT = 16 << 20  # bytes; more than the text of a million tokens
BODY_BUDGET = 128 << 20  # bytes
BODY_TIMEOUT_S = 60.0
KEEP_ALIVE_S = 15.0
LOAD_TIMEOUT_S = 600.0
MAX_INFLIGHT = 4096
STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSettings:
    """keep_alive_s: silence before a comment on a stream.
    probe_s: see Answer; None where the proxy tells when a client leaves.
    body_limit: bytes of a request.
    body_budget: bytes of the bodies of all requests in flight in a process.
    body_timeout_s: for a request's body to arrive.
    request_timeout_s: for the whole of an answer; None for no end.
    api_keys: any of them opens, in ASCII; without one everybody may enter.
    key_owners: the names of those whose keys have one.
    encryption_key: of what clients keep of the server's; b"" for one of each process.
    hosts: names of the server, beside its addresses and localhost.
    host_names: checks the name that a request is for, where there are no keys; None for no check.
    cors_origins: pages of these origins may ask; "*" stands for all.
    load_timeout_s: for a model to be loaded, or for a replica where none is left.
    max_inflight: requests of one ingress process, from their first byte to the last of the answer.
    priority_orders_all: whether a request's priority puts it before other clients' requests, too.
    shared_prefixes: whether a key finds the cached prefixes of another one.
    stop_timeout_s: for answers to end when the server is told to stop.
    stopping: of this process; None where nobody tells it to stop.
    media: the limits of images, sounds and documents in requests.
    sees_peers: whether a connection's other end is the client, and not a proxy that tells nothing
        of it.
    """

    keep_alive_s: float = KEEP_ALIVE_S
    probe_s: float | None = None
    body_limit: int = BODY_LIMIT
    body_budget: int = BODY_BUDGET
    body_timeout_s: float = BODY_TIMEOUT_S
    request_timeout_s: float | None = None
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    key_owners: Mapping[str, str] = field(default_factory=dict, repr=False)
    encryption_key: bytes = field(default=b"", repr=False)
    hosts: tuple[str, ...] = ()
    host_names: HostNames | None = field(default=None, repr=False)
    cors_origins: tuple[str, ...] = ()
    load_timeout_s: float = LOAD_TIMEOUT_S
    max_inflight: int = MAX_INFLIGHT
    priority_orders_all: bool = False
    shared_prefixes: bool = False
    stop_timeout_s: float = STOP_TIMEOUT_S
    stopping: Stopping | None = field(default=None, repr=False)
    sees_peers: bool = True
    media: MediaSettings = field(default_factory=MediaSettings)

    @property
    def patience_s(self) -> float:
        """How long a request waits for a model or a replica."""
        if self.request_timeout_s is None:
            return self.load_timeout_s
        return min(self.load_timeout_s, self.request_timeout_s)


DEFAULTS = IngressSettings()
