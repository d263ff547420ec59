"""Kinds of tools: how they are named and described, and how people ask for what they do.

A tool is made of a kind and a noun, and nouns can be invented: a model that sees a new one every
time learns to read the definition.
"""

from dataclasses import dataclass

from serve_app.demo.training.corpus.texts import Texts
from serve_app.demo.training.corpus.tools.values import NOUNS, ValueSlot, maker, slots

KINDS, CATALOG = Texts("kinds"), Texts("catalog")
# how people ask for something without its name
IDIOMS = {
    noun: tuple(ask.strip() for ask in asks.split(";")) for noun, asks in NOUNS.table("idioms")
}


@dataclass(frozen=True)
class ToolKind:
    """`names`, `about` and `asks` have `{x}` for the noun and `{a}`, `{b}`, ... for the slots."""

    nouns: tuple[str, ...]
    names: tuple[str, ...]
    about: tuple[str, ...]
    asks: tuple[str, ...]
    slots: tuple[ValueSlot, ...]
    done: str = ""  # what is said when it is done; empty for what finds something
    entity: str = ""  # whose attribute it finds
    drawn: bool = False  # the phrasings are of one side already


def _lookup(entity: str, slot: str) -> ToolKind:
    """A kind that finds something about a thing of this sort."""
    of = "in" if entity in ("city", "town", "room") else "of"
    names, about, asks = (
        tuple(text.replace("<of>", of).replace("<entity>", entity) for text in texts)
        for texts in (KINDS.asks(f"lookup {part}") for part in ("names", "about", "asks"))
    )
    nouns = tuple(NOUNS.listed("attributes"))
    return ToolKind(nouns, names, about, asks, slots(slot), entity=entity)


def _action(kind: str, nouns: str, parameters: str, done: str) -> ToolKind:
    names, about, asks = (KINDS.asks(f"{kind} {part}") for part in ("names", "about", "asks"))
    return ToolKind(tuple(NOUNS.listed(nouns)), names, about, asks, slots(parameters), done)


def _written(called: str, about: str, parameters: str, asks: str, done: str = "") -> ToolKind:
    """A kind of one tool that was written by hand, with what people say when they want it.

    Few of these questions are made of the words of a definition alone: some share a verb with it,
    some a noun or a parameter, some hardly anything.
    """
    fields = [slot.split() for slot in parameters.split(",")]
    return ToolKind(
        nouns=(called.replace("_", " "),),
        names=(called,),
        about=(about,),
        asks=tuple(ask.strip() for ask in asks.split(";")),
        slots=tuple(ValueSlot((field,), maker(made), type_) for field, type_, made in fields),
        done=done,
        drawn=True,
    )


LOOKUPS = tuple(_lookup(*row) for row in KINDS.table("entities"))
ACTIONS = tuple(_action(*row) for row in KINDS.table("kinds"))
WRITTEN_KINDS = tuple(_written(*row) for row in CATALOG.table("tools"))
HELD_OUT = tuple(_written(*row) for row in CATALOG.table("held out"))
