"""Validation errors as one refusal: the path of the field, and what was expected there."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from deployments.wire import Refused, refused

Schema = TypeVar("Schema", bound=BaseModel)
Path = tuple[int | str, ...]
MAX_ERRORS = 1000  # with more, the details are left out: they would take long
VERDICT = re.compile(r"^\w+ should ")
SIZE = re.compile(r"^(List|String|Dictionary) should have ")
BOUND = re.compile(r"^must be (greater|less) ")
MODEL = re.compile(r" or instance of \w+$")
KINDS = {"List": "a list", "String": "a string", "Dictionary": "an object"}
REPHRASINGS = {
    "a valid dictionary or object to extract fields from": "an object",
    "a valid integer": "an integer",
    "a valid dictionary": "an object",
    "a valid ": "a ",
    " after validation": "",
    "must be a list of at most 0 items": "must be an empty list",
    "must match pattern ": "must match the pattern ",
    "must be True": "must be true",
    "must be False": "must be false",
}


def parse(schema: type[Schema], value: object) -> Schema:
    """The validated value; raises Refused."""
    if not isinstance(value, dict):
        raise refused("The body must be a JSON object")
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise refusal(error, value) from None


def refuse_unsupported(
    value: object, neutral: Mapping[str, Sequence[object]], path: str = ""
) -> Mapping[str, object]:
    """The body, or the object at `path` in it, without the fields that are known but not served.

    Such a field may be null or one of its neutral values, which ask for what is done anyway.
    """
    if not isinstance(value, dict):
        raise refused("The body must be a JSON object")
    for name in neutral.keys() & value.keys():
        if value[name] is not None and not _among(value[name], neutral[name]):
            param = f"{path}.{name}" if path else name
            raise refused(f"`{param}` is not supported by this server", param)
    return {name: inner for name, inner in value.items() if name not in neutral}


def refusal(error: ValidationError, value: object) -> Refused:
    """One refusal for the deepest wrong field; it names all forms that a union allows there."""
    if error.error_count() > MAX_ERRORS:
        return refused(f"The body is wrong in {error.error_count()} places")
    details = [(_path(detail, value), detail) for detail in error.errors()]
    path = max((path for path, _ in details), key=len)
    here = [detail for other, detail in details if other == path]
    forms = list(dict.fromkeys(_expectation(detail) for detail in here))
    if len(forms) > 1:
        forms = [BOUND.sub(r"must be a number \1", form) for form in forms]
    expected = " or ".join(forms)
    if expected.startswith("must be "):
        expected = expected.replace(" or must be ", " or ")
    return refused(f"`{format_path(path)}` {expected}{_received(here[0])}", format_path(path))


def format_path(path: Path) -> str:
    """("messages", 0, "role") as `messages[0].role`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _path(detail: ErrorDetails, value: object) -> Path:
    """The parts of `loc` that exist in the value: the others name members of unions."""
    path: list[int | str] = []
    for rest, part in enumerate(detail["loc"], start=1 - len(detail["loc"])):
        if rest and _is_tag(part, value):
            continue
        if (isinstance(value, dict) and part in value) or isinstance(part, int):
            path.append(part)
            value = value[part]  # type: ignore[index]
    if detail["type"] == "missing" and value is not None:  # null may stand for what is missing
        path.append(detail["loc"][-1])
    elif detail["type"].startswith("union_tag"):
        path.append(detail["ctx"]["discriminator"].strip("'"))
    return tuple(path)


def _is_tag(part: int | str, value: object) -> bool:
    """Whether `part` names the member of a union, though `value` has a field of that name."""
    if not isinstance(value, dict) or part not in (value.get("type"), value.get("role")):
        return False
    return not isinstance(value.get(part), (dict, list))


def _expectation(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "missing" | "union_tag_not_found":
            return "is required"
        case "extra_forbidden":
            return "is not a field that this server knows"
        case "union_tag_invalid":
            return f"must be one of {detail['ctx']['expected_tags']}"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "int_parsing_size":
            return "must be a smaller integer"
        case "none_required":
            return "is not supported by this server: only null is allowed"
    sized = SIZE.sub(lambda kind: f"must be {KINDS[kind[1]]} of ", MODEL.sub("", detail["msg"]))
    message = VERDICT.sub("must ", sized)
    for theirs, ours in REPHRASINGS.items():
        message = message.replace(theirs, ours)
    return message


def _received(detail: ErrorDetails) -> str:
    shows_input = isinstance(detail["input"], (int, float)) and detail["type"] != "extra_forbidden"
    return f", got {json.dumps(detail['input'])}" if shows_input else ""


def _among(value: object, allowed: Sequence[object]) -> bool:
    return any(type(value) is type(one) and value == one for one in allowed)
