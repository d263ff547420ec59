"""The arguments of a call that a client gives back: an object, also of an answer cut within it."""

from pydantic_core import from_json, to_json

from deployments.ingress.body import parse_json
from deployments.ingress.errors import refused
from deployments.wire import Refused


def arguments_object(text: str, param: str) -> dict[str, object]:
    """Raises Refused."""
    try:
        arguments = parse_json(_mended(text or "{}"))
    except Refused as refusal:
        raise refused(f"`{param}` is not JSON", param) from refusal
    if not isinstance(arguments, dict):
        raise refused(f"`{param}` must be a JSON object", param)
    return arguments


def _mended(text: str) -> bytes:
    """What is whole of arguments that end too early: agents repeat the calls of an answer that
    reached its limit as they got them.
    """
    try:
        from_json(text)
    except ValueError as error:
        if text.lstrip().startswith("{") and str(error).startswith("EOF "):
            return to_json(from_json(text, allow_partial=True))
    return text.encode()
