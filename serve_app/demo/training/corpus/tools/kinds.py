"""Kinds of tools: how they are named and described, what people say, and what values they take.

A tool is made of a kind and a noun, and nouns can be invented: a model that sees a new one every
time learns to read the definition. Values can only be read, never guessed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from serve_app.demo.training.corpus.chat import Value
from serve_app.demo.training.corpus.names import ITEMS, code, name, town, word
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.calendar import DAYS, MONTHS
from serve_app.demo.training.corpus.texts import Texts, capital

Maker = Callable[[SeededDraw], Value]
NOUNS = Texts("nouns")
ROOMS, UNITS = NOUNS.listed("rooms"), NOUNS.listed("units")
KINDS, CATALOG = Texts("kinds"), Texts("catalog")
# how people ask for something without its name
IDIOMS = {
    noun: tuple(ask.strip() for ask in asks.split(";")) for noun, asks in NOUNS.table("idioms")
}


@dataclass(frozen=True)
class ValueSlot:
    """A parameter: what it may be called, its JSON type, and how its value is made."""

    names: tuple[str, ...]
    make: Maker
    type: str = "string"


def number(least: int, most: int) -> Callable[[SeededDraw], int]:
    """Returns a maker of numbers in a range. In a small range none is held out."""
    if most - least < 30:
        return lambda draw: draw.randint(least, most)
    return lambda draw: draw.new(lambda rng: rng.randint(least, most))


def day(draw: SeededDraw) -> str:
    if draw.chance(0.4):
        return draw.choice((*DAYS, "today", "tomorrow"))
    if draw.chance(0.5):
        return f"{draw.randint(1, 28)} {draw.choice(MONTHS)}"
    return f"{draw.randint(2020, 2032)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"


def clock(draw: SeededDraw) -> str:
    return f"{draw.randint(0, 23)}:{draw.choice((0, 15, 30, 45, draw.randint(1, 59))):02}"


def receiver(draw: SeededDraw) -> str:
    return draw.choice((name, mail))(draw)


def mail(draw: SeededDraw) -> str:
    ending = draw.choice(("com", "org", "net", "de", "io"))
    return f"{draw.choice((name, word))(draw).lower()}@{word(draw)}.{ending}"


def phrase(draw: SeededDraw) -> str:
    """A few words of which some mean nothing."""
    words = [draw.choice(ITEMS) if draw.chance(0.6) else word(draw)]
    words += [draw.choice(ITEMS) for _ in range(draw.randint(0, 2))]
    return " ".join(words)


def item(draw: SeededDraw) -> str:
    return draw.choice(ITEMS) if draw.chance(0.5) else word(draw)


def title(draw: SeededDraw) -> str:
    return " ".join(capital(item(draw)) for _ in range(draw.randint(1, 2)))


def company(draw: SeededDraw) -> str:
    return capital(word(draw))


def path(draw: SeededDraw) -> str:
    return f"{item(draw)}/{word(draw)}.{draw.choice(('txt', 'md', 'py', 'csv', 'json'))}"


def room(draw: SeededDraw) -> str:
    return draw.one(ROOMS) if draw.chance(0.7) else word(draw)


def unit(draw: SeededDraw) -> str:
    return draw.choice(UNITS) if draw.chance(0.7) else word(draw)


FOUND: tuple[Maker, ...] = (
    number(1, 9999),
    number(1, 99),
    lambda draw: f"{draw.randint(1, 999)} {unit(draw)}",
    item,
    name,
    clock,
    lambda draw: f"{draw.randint(1, 99)}.{draw.randint(1, 9)}",
    code,
)
MAKERS: dict[str, Maker] = {
    made.__name__: made
    for made in (
        *(town, name, code, day, clock, company, title, phrase, room),
        *(item, unit, path, receiver),
    )
}
MAKERS |= {"few": number(2, 12), "many": number(20, 900), "chance": lambda draw: draw.chance(0.5)}


def maker(named: str) -> Maker:
    """Returns the maker of a name; `2-20` is a number in that range."""
    return MAKERS[named] if named in MAKERS else number(*map(int, named.split("-")))


def slots(text: str) -> tuple[ValueSlot, ...]:
    """Reads the parameters of a kind: each `its names: maker type`, with semicolons between."""
    return tuple(_slot(part) for part in text.split(";") if part.strip())


def _slot(text: str) -> ValueSlot:
    names, made = text.split(":")
    named, *kind = made.split()
    return ValueSlot(tuple(names.split()), maker(named), *kind)


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
