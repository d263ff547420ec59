"""One line for each request: what was asked, how it ended, how long it took, and its tokens.

It says nothing of a query, a body or a header but the request's id: these may hold secrets.
"""

import logging
from urllib.parse import quote

from starlette.types import Scope

logger = logging.getLogger(__name__)

CLIENT_LEFT = 499  # nginx's status for who left before an answer began
MAX_PATH_LENGTH = 256
TOKENS = "tokens"  # in the state of a request, where its answer has used any
PROBE = "probe"  # and where only a machine wants to know whether the server lives


def note_tokens(scope: Scope, prompt_tokens: int, output_tokens: int) -> None:
    """Notes the tokens that the answer to this request has used so far."""
    scope.get("state", {})[TOKENS] = prompt_tokens, output_tokens


def note_probe(scope: Scope) -> None:
    """Balancers and supervisors ask every second: a log that people read leaves these out."""
    scope.get("state", {})[PROBE] = True


def log_request(scope: Scope, status: int | None, seconds: float) -> None:
    """`status` is None where no answer began. In JSON each part is a field of its own, too."""
    state = scope["state"]
    path = quote(scope["path"])[:MAX_PATH_LENGTH]  # so that a path is no second line
    fields: dict[str, object] = {
        "request_id": state["request_id"],
        "method": scope.get("method", "WEBSOCKET"),
        "path": path,
        "status": CLIENT_LEFT if status is None else status,
        "duration_ms": round(1000 * seconds, 1),
    }
    text = "{method} {path} {status} {duration_ms}ms"
    if TOKENS in state:
        fields["prompt_tokens"], fields["output_tokens"] = state[TOKENS]
        text += " {prompt_tokens} tokens in, {output_tokens} out"
    level = logging.DEBUG if PROBE in state else logging.INFO
    logger.log(level, "%s", text.format_map(fields), extra=fields)
