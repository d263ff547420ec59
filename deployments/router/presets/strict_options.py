"""The base of all tables of settings: unknown names are errors, and each option has its words."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator

MIN_SIMILARITY = 0.7  # of an unknown name to a known one that is suggested in its place


@dataclass(frozen=True, slots=True)
class Ini:
    """A key of a presets file that says an option; without one it is the option's name.

    names: all that are understood, the environment's too; the first is shown.
    read: from the file's text to what the option takes.
    unset: llama-server's word for leaving the choice to itself.
    separator: of the items of a list, as they are written.
    """

    names: tuple[str, ...]
    read: Callable[[str], object] = str
    unset: str | None = None
    separator: str = ","


@dataclass(frozen=True, slots=True)
class Unset:
    """The guide's words for what holds where an option without a default value is not set."""

    text: str


class StrictOptions(BaseModel):
    """Unknown names are errors: a misspelt setting must not be silently off."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_names_and_lists(cls, given: object) -> object:
        """Checks names and lists, with more help than pydantic would give."""
        for name, value in given.items() if isinstance(given, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(f"unknown setting {name}{cls._nearest(str(name))}")
            if isinstance(value, str) and get_origin(cls.model_fields[name].annotation) is tuple:
                raise ValueError(f"{name}: must be a list")
        return given

    @classmethod
    def _nearest(cls, unknown: str) -> str:
        named = cls._named()
        near = get_close_matches(unknown.replace("-", "_"), named, n=1, cutoff=MIN_SIMILARITY)
        return f"; did you mean {named[near[0]]}?" if near else ""

    @classmethod
    def _named(cls) -> dict[str, str]:
        """Its options by their own names and by those that presets files have, and then those of
        the options within it.
        """
        named = {
            key.replace("-", "_"): name
            for name, field in cls.model_fields.items()
            for ini in (*field.metadata, Ini((name,)))
            if isinstance(ini, Ini)
            for key in ini.names
        }
        for name, field in cls.model_fields.items():
            for kind in (field.annotation, *get_args(field.annotation)):
                if isinstance(kind, type) and issubclass(kind, StrictOptions):
                    within = kind._named().items()
                    named = {key: f"{name}: {{{inner}}}" for key, inner in within} | named
        return named
