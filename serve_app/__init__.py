"""The builders of the applications, which `serve.yaml` lists as `serve_app:NAME`.

They are imported when one is asked for: a command that starts nothing needs none of them, and Ray
takes most of a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serve_app.builders import anthropic, llama, openai, router, web

__all__ = ["anthropic", "llama", "openai", "router", "web"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module("serve_app.builders"), name)
    return found
