"""A choice of the fields of an answer, as /completion's `response_fields` makes it."""

from collections.abc import Mapping, Sequence


def only(paths: Sequence[str], result: dict[str, object]) -> dict[str, object]:
    """The fields at the paths, each under its whole path; all when there are none.

    llama-server documents that a path which leads nowhere is left out.
    """
    if not paths:
        return result
    found = {path: _at(path.split("/"), result) for path in paths}
    return {path: values[0] for path, values in found.items() if values}


def _at(names: Sequence[str], value: object) -> list[object]:
    """The value, or nothing."""
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return []
        value = value[name]
    return [value]
