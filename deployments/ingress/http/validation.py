"""Validation errors as one refusal: the path of the field, and what was expected there."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from deployments.contract.errors import Refused, refused
from deployments.ingress.http.schema import PATTERNS

Schema = TypeVar("Schema", bound=BaseModel)
Path = tuple[int | str, ...]
MAX_ERRORS = 1000  # with more, the details are left out: they would take long
VERDICT = re.compile(r"^\w+ should ")
SIZE = re.compile(r"^(List|Value|String|Dictionary) should have ")
BOUND = re.compile(r"^(greater|less) than ")
GIVEN_SIZE = re.compile(r", not \d+$")
MODEL = re.compile(r" or instance of \w+$")
MUST_BE = "must be "
NAME_OF_FIELD = "[key]"  # pydantic's last step to it
KINDS = {"List": "a list", "Value": "a list", "String": "a string", "Dictionary": "an object"}
LISTED = "'0123456789"
REPHRASINGS = {
    "a valid dictionary or object to extract fields from": "an object",
    "a valid integer": "an integer",
    "a valid dictionary": "an object",
    "a valid ": "a ",
    " after validation": "",
    ", unable to parse string as a number": "",  # a form's, where each value is a text
    ", unable to interpret input": "",
    "must be True": "must be true",
    "must be False": "must be false",
}


def parse(schema: type[Schema], value: object, path: str = "") -> Schema:
    """The validated value of the body, or of the object at `path` in it. Raises Refused."""
    if not isinstance(value, dict):
        raise refused("The body must be a JSON object")
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise _refusal(error, value, path) from None


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


def _refusal(error: ValidationError, value: object, outer: str) -> Refused:
    """One refusal for the deepest wrong field. It names all forms that a union allows there. Where
    these are lists, the one that was right for longest tells.
    """
    if error.error_count() > MAX_ERRORS:
        return refused(f"The body is wrong in {error.error_count()} places")
    details = [(_path(detail, value), detail) for detail in error.errors()]
    first_of_form: dict[Path, Path] = {}
    for path, detail in details:
        form = tuple(part for part in detail["loc"] if not isinstance(part, int))
        first_of_form.setdefault(form, path)
    path = max(first_of_form.values(), key=_progress)
    here = [detail for other, detail in details if other == path]
    forms = list(dict.fromkeys(_expectation(detail) for detail in here))
    expected = forms[0] if len(forms) == 1 else _any_of(forms)
    param = ".".join(filter(None, (outer, format_path(path))))
    return refused(f"`{param}` {expected}{_received(here[0])}", param)


def _progress(path: Path) -> tuple[int, list[int]]:
    return len(path), [part for part in path if isinstance(part, int)]


def _any_of(forms: Sequence[str]) -> str:
    """Joins what one field may be: "must be a string, an integer or a list"."""
    values = [form.removeprefix(MUST_BE) for form in forms if form.startswith(MUST_BE)]
    if len(values) < len(forms):
        return " or ".join(forms)
    values = [GIVEN_SIZE.sub("", BOUND.sub(r"a number \1 than ", value)) for value in values]
    if "a number" in values:
        values = [value for value in values if value != "an integer"]
    # Values that are listed one by one are alternatives as the others are.
    values = [value.replace(" or ", ", ") if value[0] in LISTED else value for value in values]
    return MUST_BE + " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))


def format_path(path: Path) -> str:
    """("messages", 0, "role") as `messages[0].role`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _path(detail: ErrorDetails, value: object) -> Path:
    """The parts of `loc` that exist in the value: the others name members of unions."""
    path: list[int | str] = []
    for part, following in zip_longest(detail["loc"], detail["loc"][1:]):
        if following is not None and _is_tag(part, following, value):
            continue
        if (isinstance(value, dict) and part in value) or isinstance(part, int):
            path.append(part)
            value = value[part]  # type: ignore[index]
    if detail["type"] == "missing" and value is not None:  # null may stand for what is missing
        path.append(detail["loc"][-1])
    elif detail["type"].startswith("union_tag"):
        path.append(detail["ctx"]["discriminator"].strip("'"))
    return tuple(path)


def _is_tag(part: int | str, following: int | str, value: object) -> bool:
    """Whether `part` names the member of a union, though `value` may have a field of that name:
    the part behind a tag is a field of `value`, too.
    """
    if not isinstance(value, dict) or part not in (value.get("type"), value.get("role")):
        return False
    return following in value or not isinstance(value.get(part), (dict, list))


def _expectation(detail: ErrorDetails) -> str:
    said = _said(detail)
    is_of_name = detail["loc"] and detail["loc"][-1] == NAME_OF_FIELD
    return f"is a name that {said}" if is_of_name else said


def _said(detail: ErrorDetails) -> str:
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
        case "string_pattern_mismatch":
            return f"must be {PATTERNS[detail['ctx']['pattern']]}"
        case "too_long" if detail["ctx"]["max_length"] == 0:
            return "must be an empty list"
        case "too_short" | "too_long" if isinstance(detail["input"], dict):
            said = detail["msg"].replace("item", "field").replace(" after validation", "")
            return SIZE.sub("must be an object of ", said)
    sized = SIZE.sub(lambda kind: f"must be {KINDS[kind[1]]} of ", MODEL.sub("", detail["msg"]))
    message = VERDICT.sub("must ", sized)
    for theirs, ours in REPHRASINGS.items():
        message = message.replace(theirs, ours)
    return message


def _received(detail: ErrorDetails) -> str:
    is_number = isinstance(detail["input"], (int, float))
    shows_input = is_number and detail["type"] not in ("extra_forbidden", "none_required")
    return f", got {json.dumps(detail['input'])}" if shows_input else ""


def _among(value: object, allowed: Sequence[object]) -> bool:
    return any(type(value) is type(candidate) and value == candidate for candidate in allowed)
