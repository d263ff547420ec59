"""Selects fields of an answer, as /completion's `response_fields` requests."""

from collections.abc import Mapping, Sequence


def only(paths: Sequence[str], result: dict[str, object]) -> dict[str, object]:
    """The fields at the paths, each under its full path; without paths all fields.

    As llama-server documents, a path that does not exist is left out.
    """
    if not paths:
        return result
    found = {path: _at(path.split("/"), result) for path in paths}
    return {path: values[0] for path, values in found.items() if values}


def _at(names: Sequence[str], value: object) -> list[object]:
    """The value in a list, or an empty list."""
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return []
        value = value[name]
    return [value]
