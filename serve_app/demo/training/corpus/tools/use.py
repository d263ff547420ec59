"""A tool ready to be asked for: a kind with a noun, names for its parameters, and values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from serve_app.demo.training.corpus.chat import SampleCall, SampleTool, Value
from serve_app.demo.training.corpus.names import ITEMS, word
from serve_app.demo.training.corpus.phrases import capital, plural
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.tools.choice import loose
from serve_app.demo.training.corpus.tools.kinds import (
    ACTIONS,
    IDIOMS,
    LOOKUPS,
    WRITTEN_KINDS,
    ToolKind,
)
from serve_app.demo.training.corpus.tools.values import ValueSlot

LETTERS = "abcd"
VOWEL = re.compile(r"\b([Aa]) (?=[aeio])")
WITHOUT_ON = re.compile(r"\b(?:on|for) (?=today|tomorrow)", re.IGNORECASE)
OPTIONAL = ("language", "format", "limit", "unit", "verbose", "page", "timeout", "currency")


@dataclass(frozen=True)
class Use:
    """A tool of some kind, ready to be asked for as often as one likes."""

    kind: ToolKind
    noun: str
    tool: SampleTool
    fields: tuple[str, ...]

    def values(self, draw: SeededDraw) -> tuple[Value, ...]:
        values = tuple(slot.make(draw) for slot in self.kind.slots)
        return values if len(set(values)) == len(values) else self.values(draw)

    def call(self, values: tuple[Value, ...]) -> SampleCall:
        return SampleCall(self.tool.name, dict(zip(self.fields, values, strict=True)))

    def ask(self, draw: SeededDraw, values: tuple[Value, ...]) -> str:
        quote = draw.choice(('"', '"', ""))
        plain = IDIOMS.get(self.noun, ()) if self.kind in LOOKUPS and not draw.held else ()
        asks = draw.choice if self.kind.drawn else draw.ask
        text = draw.choice(plain) if plain and draw.chance(0.3) else asks(self.kind.asks)
        return capital(self.said(text, values, quote))

    def said(self, text: str, values: tuple[Value, ...], quote: str = "") -> str:
        fill = dict(zip(LETTERS, map(_spoken, values), strict=False))
        filled = text.format(x=self.noun, xs=plural(self.noun), q=quote, **fill)
        return VOWEL.sub(r"\1n ", WITHOUT_ON.sub("", filled))


def _spoken(value: Value) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def use(draw: SeededDraw, kind: ToolKind | None = None) -> Use:
    kind = kind or _any_kind(draw)
    if len(kind.nouns) == 1:
        noun = kind.nouns[0]
    else:
        noun = word(draw) if draw.chance(0.3) else draw.one(kind.nouns)
    stem = noun.replace(" ", "_").replace("-", "_")
    fields = tuple(_field(draw, slot) for slot in kind.slots)
    if len(set(fields)) < len(fields):
        return use(draw, kind)
    properties = {
        field: _property(draw, field, slot) for field, slot in zip(fields, kind.slots, strict=True)
    }
    if draw.chance(0.1) and (more := draw.choice(OPTIONAL)) not in fields:
        properties[more] = {"type": "string"}
    called = draw.choice(kind.names).format(x=stem, xs=plural(stem))
    if draw.chance(0.15):
        called = "".join(map(capital, called.split("_")))
        called = called[0].lower() + called[1:]
    about = VOWEL.sub(r"\1n ", draw.choice(kind.about).format(x=noun, xs=plural(noun)))
    tool = SampleTool(called, about, properties, fields, closed=draw.chance(0.15))
    return Use(kind, noun, tool, fields)


def _any_kind(draw: SeededDraw) -> ToolKind:
    """Tools of any words and the written ones are for training alone."""
    sort = 1.0 if draw.held else draw.random()
    if sort < 0.22:
        return loose(draw)
    if sort < 0.6:
        return draw.choice(WRITTEN_KINDS)
    return draw.choice(LOOKUPS if draw.chance(0.45) else ACTIONS)


def _field(draw: SeededDraw, slot: ValueSlot) -> str:
    """Often one that can't be guessed from what is asked."""
    if len(slot.names) == 1 or draw.chance(0.6):
        return draw.choice(slot.names)
    made = draw.choice(ITEMS) if draw.chance(0.5) else word(draw)
    return f"{made}_{draw.choice(slot.names)}" if draw.chance(0.3) else made


def _property(draw: SeededDraw, field: str, slot: ValueSlot) -> Mapping[str, object]:
    named = field.replace("_", " ")
    if draw.chance(0.5):
        return {"type": slot.type}
    about = draw.choice(
        (f"The {named}", f"The {named}.", capital(named), f"{capital(named)} to use")
    )
    return {"type": slot.type, "description": about}
