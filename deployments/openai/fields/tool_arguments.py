"""The arguments of a call that a client gives back: an object, whatever the model wrote."""

import json
import math

from pydantic_core import from_json, to_json

from deployments.ingress.http.body import parse_json
from deployments.wire import Refused

INVALID = "INVALID_JSON"  # Anthropic's name for arguments that are none


def arguments_object(text: str) -> dict[str, object]:
    """Templates take an object: what is none is the text in one. Text in a JSON string, as some
    clients give back what they could not read, is that text.
    """
    arguments = _readable(text)
    if isinstance(arguments, str):
        text = arguments
        arguments = _readable(text)
    if arguments is None:
        return {}
    return arguments if isinstance(arguments, dict) else {INVALID: text}


def _readable(text: str) -> object:
    """The text itself where it is no JSON."""
    try:
        return read_arguments(mended(text or "{}"))
    except ValueError:
        return text


def read_arguments(text: str) -> object:
    """What a model wrote, read less strictly than what a client writes: of names that stand twice
    the last counts, and what is no number or no character stays as a text. Raises ValueError.
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
    """What is whole of arguments that end too early: agents repeat the calls of an answer that
    reached its limit as they got them.
    """
    try:
        from_json(text)
    except ValueError as error:
        if text.lstrip().startswith("{") and str(error).startswith("EOF "):
            return to_json(from_json(text, allow_partial=True)).decode()
    return text
