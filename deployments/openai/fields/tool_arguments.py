"""Reads the arguments of a tool call that a client sends back: always an object."""

import json
import math

from pydantic_core import from_json, to_json

from deployments.contract.errors import Refused
from deployments.ingress.http.body import parse_json

INVALID = "INVALID_JSON"  # Anthropic's key for arguments that are no JSON object


def arguments_object(text: str) -> dict[str, object]:
    """An object, as templates expect. Arguments that are no object become {INVALID: text}. A JSON
    string that holds JSON, as some clients send it, is decoded first.
    """
    arguments = _readable(text)
    if isinstance(arguments, str):
        text = arguments
        arguments = _readable(text)
    if arguments is None:
        return {}
    return arguments if isinstance(arguments, dict) else {INVALID: text}


def _readable(text: str) -> object:
    """The JSON value, or the text itself if it is no JSON."""
    try:
        return read_arguments(mended(text or "{}"))
    except ValueError:
        return text


def read_arguments(text: str) -> object:
    """The JSON that a model wrote, read leniently: of duplicate names the last counts, and numbers
    that are not finite stay text. Raises ValueError.
    """
    try:
        value = json.loads(text, parse_float=_number, parse_constant=str)
        return parse_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (Refused, RecursionError) as failure:
        raise ValueError("nested too deep") from failure


def _number(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def mended(text: str) -> str:
    """Arguments that are cut off, completed: agents send back the calls of an answer that reached
    its token limit as they received them.
    """
    try:
        from_json(text)
    except ValueError as error:
        if text.lstrip().startswith("{") and str(error).startswith("EOF "):
            return to_json(from_json(text, allow_partial=True)).decode()
    return text
