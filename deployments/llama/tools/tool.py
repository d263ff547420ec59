"""The interface of a built-in tool: its description and its parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from deployments.ingress.http.schema import Strict
from deployments.llama.tools.folder import Folder, Path


class Params(Strict):
    """The arguments of a call, which the model fills in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The place where a tool runs: relative paths begin at `cwd`.

    `as_base64` returns files as bytes.
    """

    folder: Folder
    cwd: Path = ()
    as_base64: bool = False

    def path(self, given: str) -> Path:
        return self.folder.path(given, self.cwd)


ParamsT = TypeVar("ParamsT", bound=Params)
Answer = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInTool(Generic[ParamsT]):
    """`call` may raise ToolError."""

    name: str
    display_name: str
    description: str
    params: type[ParamsT]
    call: Callable[[ParamsT, ToolContext], Answer]
    writes: bool = False

    def described(self) -> object:
        schema = self.params.model_json_schema()
        return {
            "display_name": self.display_name,
            "tool": self.name,
            "type": "server",
            "permissions": {"write": self.writes},
            "uses_cwd": True,
            "definition": {
                "type": "function",
                "function": {
                    "name": self.name,
                    "description": self.description,
                    "parameters": {**schema, "title": self.name},
                },
            },
        }
