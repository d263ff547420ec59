"""What an operator may set of an ingress, whichever its protocol; read once, at the root."""

from dataclasses import dataclass, field

from deployments.ingress.body import BODY_LIMIT, BODY_TIMEOUT_S

KEEP_ALIVE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSettings:
    """keep_alive_s: silence before a comment on a stream.
    probe_s: see Answer; None where the proxy tells when a client leaves.
    body_limit: bytes of a request.
    body_timeout_s: for a request's body to arrive.
    request_timeout_s: for the whole of an answer; None for no end.
    api_keys: any of them opens, in ASCII; without one everybody may enter.
    cors_origins: pages of these origins may ask; "*" stands for all.
    """

    keep_alive_s: float = KEEP_ALIVE_S
    probe_s: float | None = None
    body_limit: int = BODY_LIMIT
    body_timeout_s: float = BODY_TIMEOUT_S
    request_timeout_s: float | None = None
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    cors_origins: tuple[str, ...] = ()


DEFAULTS = IngressSettings()
