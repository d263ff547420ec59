"""A tool that a request offers to the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

INPUT = "input"  # the only parameter of a tool that takes a text
TEXT_PARAMETERS: Mapping[str, object] = MappingProxyType(
    {
        "type": "object",
        "properties": {INPUT: {"type": "string"}},
        "required": [INPUT],
        "additionalProperties": False,
    }
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is a JSON Schema of an object.

    Calls of a `strict` tool always fit the schema. Errors name the field `param`. `input_lark` is
    Lark of the text that a tool with TEXT_PARAMETERS takes, "" for any text.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=lambda: {"type": "object"})
    strict: bool = False
    param: str = "tools"
    input_lark: str = ""
