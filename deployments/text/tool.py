"""A tool that a request offers to the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `parameters` is a JSON Schema of an object.

    Calls of a `strict` one always fit it, and `param` is where the request has it. Those held to it
    `lenient` fit what a grammar can hold of it.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=lambda: {"type": "object"})
    strict: bool = False
    param: str = "tools"
    lenient: bool = False
