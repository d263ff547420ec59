"""One log a replica: Serve's own, in its format, with the id of the request that a line is about.

Serve's `logging_config` sets the format for all, models too, which are deployed while it runs.
"""

import logging

from ray.serve._private.logging_utils import ServeContextFilter
from ray.serve.context import (
    _get_internal_replica_context,
    _get_serve_request_context,
    _RequestContext,
    _serve_request_context,
)

SERVE_LOG = logging.getLogger("ray.serve")
OWN_LOG = logging.getLogger("deployments")


def join_serve_log() -> None:
    """Our loggers write to Serve's, which adds replica, route and request id.

    Without Serve's access log: it names each ingress and none of its endpoints, and most calls of
    others ask for a state. Ingresses have a line of their own for each request.
    """
    OWN_LOG.parent = SERVE_LOG
    SERVE_LOG.addFilter(_is_no_access)
    for handler in SERVE_LOG.handlers:  # Serve leaves it out where it writes no access log
        handler.addFilter(ServeContextFilter())


def _is_no_access(record: logging.LogRecord) -> bool:
    return not getattr(record, "serve_access_log", False)


def serve_logging_config() -> dict[str, object] | None:
    """The logging config of this replica, for a deployment that it creates."""
    replica = _get_internal_replica_context()
    config = None if replica is None else replica._deployment_config.logging_config
    return None if config is None else dict(config)


def request_id() -> str:
    """The id of the HTTP request that the running task serves."""
    return str(_get_serve_request_context().request_id)


def bind_request_id(request_id: str) -> None:
    """Gives all later log lines of the running task the id of an HTTP request."""
    replica = _get_internal_replica_context()
    application = "" if replica is None else replica.app_name
    _serve_request_context.set(_RequestContext(request_id=request_id, app_name=application))
