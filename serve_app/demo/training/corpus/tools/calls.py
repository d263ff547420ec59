"""Conversations with tools: whether to call, what with, several at once, and what came of it.

Tools for evaluation alone are never shown in training.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from serve_app.demo.training.corpus.chat import (
    Exchange,
    Expect,
    SampleCall,
    SampleTool,
    Skill,
    Talk,
    Value,
    compact,
    said,
)
from serve_app.demo.training.corpus.names import ITEMS, word
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts, capital, plural, stopped
from serve_app.demo.training.corpus.tools import kinds
from serve_app.demo.training.corpus.tools.choice import loose
from serve_app.demo.training.corpus.tools.kinds import NOUNS, ToolKind, ValueSlot

LETTERS = "abcd"
VOWEL = re.compile(r"\b([Aa]) (?=[aeio])")
WITHOUT_ON = re.compile(r"\b(?:on|for) (?=today|tomorrow)", re.IGNORECASE)
OPTIONAL = ("language", "format", "limit", "unit", "verbose", "page", "timeout", "currency")
CALLS = Texts("calls")
# measures that a question of a conversion does not name
GENERIC = frozenset(NOUNS.listed("measures"))
FAILURES = ("not found", "no connection", "access denied", "timed out", "unknown name", "try later")
NO_TOOL = "I am sorry, I have no tool for that."


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
        plain = (
            kinds.IDIOMS.get(self.noun, ()) if self.kind in kinds.LOOKUPS and not draw.held else ()
        )
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
        return draw.choice(kinds.WRITTEN_KINDS)
    return draw.choice(kinds.LOOKUPS if draw.chance(0.45) else kinds.ACTIONS)


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


def offered(draw: SeededDraw, ours: list[Use], more: int) -> tuple[SampleTool, ...]:
    """Their tools among others, in any order, no two of which could be taken for one another."""
    known = different(draw, len(ours) + more, ours)
    draw.shuffle(known)
    return tuple(each.tool for each in known)


def different(draw: SeededDraw, count: int, known: Sequence[Use] = ()) -> list[Use]:
    """The known ones and more, up to so many."""
    found = list(known)
    while len(found) < count:
        other = use(draw)
        if all(differ(other, each) for each in found):
            found.append(other)
    return found


def differ(one: Use, other: Use) -> bool:
    words = set(one.noun.split()) & set(other.noun.split())
    generic = {one.noun, other.noun} & GENERIC and one.kind is other.kind
    return not words and one.tool.name != other.tool.name and not generic


def asked(
    draw: SeededDraw, tool: Use, question: str = "", values: tuple[Value, ...] = ()
) -> Exchange:
    values = values or tool.values(draw)
    result, answer, says = result_of(draw, tool, values)
    question = question or tool.ask(draw, values)
    calls = (tool.call(values),)
    return Exchange(question, answer, Expect(says=says), calls=calls, results=(result,))


def result_of(
    draw: SeededDraw, tool: Use, values: tuple[Value, ...]
) -> tuple[str, str, tuple[str, ...]]:
    """Returns what the tool says, what is said of it, and the words that have to be in that."""
    if draw.chance(0.1):
        why = draw.choice(FAILURES)
        shown = compact({"error": why}) if draw.chance(0.7) else f"Error: {why}"
        return shown, f"I am sorry, that did not work: {why}.", (why,)
    if tool.kind.done:
        shown = draw.choice(
            ('{"ok": true}', '{"status": "done"}', "ok", "done", '{"success": true}')
        )
        said_ = tool.said(tool.kind.done, values)
        return shown, said_, (str(_first(values)),)
    found = draw.choice(kinds.FOUND)(draw)
    key = tool.noun.replace(" ", "_")
    shapes: tuple[object, ...] = (found, {key: found}, {"result": found}, {"ok": True, key: found})
    shape = draw.choice(shapes)
    if values and not tool.kind.done and draw.chance(0.3):
        shape = {tool.fields[0]: values[0], key: found}
    shown = shape if isinstance(shape, str) else compact(shape)
    return shown, _answer(tool, values, found), (str(found),)


def _first(values: tuple[Value, ...]) -> Value:
    return values[0] if values else ""


def _answer(tool: Use, values: tuple[Value, ...], found: Value) -> str:
    if tool.kind in kinds.LOOKUPS:
        return f"The {tool.noun} of {values[0]} is {found}."
    return f"The result is {found}." if values else f"The {tool.noun} is {found}."


def calling(draw: SeededDraw) -> Talk:
    """One or two requests that tools can answer, one after the other."""
    tools = different(draw, draw.choice((1, 1, 2)))
    exchanges = [asked(draw, tool) for tool in tools]
    if len(tools) == 1 and len(tools[0].fields) == 1 and draw.chance(0.4):
        exchanges.append(_again(draw, tools[0]))
    more = draw.choice((0, 1, 1, 2, 3) if len(tools) == 1 else (0, 1))
    return Talk(exchanges, tools=offered(draw, tools, more))


def _again(draw: SeededDraw, tool: Use) -> Exchange:
    values = tool.values(draw)
    return asked(draw, tool, CALLS.ask(draw, "again", values[0]), values)


def parallel(draw: SeededDraw) -> Talk:
    """Two calls in one reply."""
    if draw.chance(0.5):
        tool = use(draw, draw.choice(kinds.LOOKUPS))
        tools = offered(draw, [tool], draw.choice((0, 1, 1, 2)))
        return Talk([_both(draw, tool)], tools=tools)
    two = different(draw, 2)
    return Talk([_two(draw, *two)], tools=offered(draw, two, draw.choice((0, 1))))


def _two(draw: SeededDraw, first: Use, second: Use) -> Exchange:
    parts = [asked(draw, first), asked(draw, second)]
    question = CALLS.ask(draw, "and_also", *(stopped(part.question) for part in parts))
    return _joined(question, parts)


def _both(draw: SeededDraw, tool: Use) -> Exchange:
    one, two = tool.values(draw), tool.values(draw)
    while one == two:
        two = tool.values(draw)
    parts = [asked(draw, tool, "-", one), asked(draw, tool, "-", two)]
    return _joined(CALLS.ask(draw, "both", x=tool.noun, a=one[0], b=two[0]), parts)


def _joined(question: str, parts: list[Exchange]) -> Exchange:
    calls: tuple[SampleCall, ...] = sum((part.calls for part in parts), ())
    results: tuple[str, ...] = sum((part.results for part in parts), ())
    says: tuple[str, ...] = sum((part.expect.says for part in parts), ())
    answer = " ".join(part.answer for part in parts)
    return Exchange(question, answer, Expect(says=says), calls=calls, results=results)


def without(draw: SeededDraw) -> Talk:
    """Asks for what none of the tools can do."""
    wanted, *others = different(draw, draw.choice((2, 2, 3, 4)))
    return Talk([_refused(draw, wanted)], tools=tuple(each.tool for each in others))


def _refused(draw: SeededDraw, wanted: Use) -> Exchange:
    return said(wanted.ask(draw, wanted.values(draw)), NO_TOOL, "no tool")


def missing(draw: SeededDraw) -> Talk:
    """A request that does not say what the tool needs to know."""
    tool = use(draw, draw.choice(kinds.LOOKUPS))
    exchanges = _incomplete(draw, tool)
    exchanges = exchanges if draw.chance(0.6) else exchanges[:1]
    return Talk(exchanges, tools=offered(draw, [tool], draw.choice((0, 1, 2))))


def _incomplete(draw: SeededDraw, tool: Use) -> list[Exchange]:
    """It and what is said when asked for what was missing."""
    entity, values = tool.kind.entity, tool.values(draw)
    question = capital(CALLS.ask(draw, "missing", x=tool.noun))
    told = draw.choice(("{}", "{}.", "For {}.", "Of {}, please.")).format(*values)
    which = said(question, f"Which {entity} do you mean?", "which", entity)
    return [which, asked(draw, tool, told, values)]


def session(skills: list[Skill]) -> Skill:
    """The skill of a long conversation with the same tools, in which anything may be asked: one
    reading of the definitions teaches more than one call.
    """

    def talk(draw: SeededDraw) -> Talk:
        known = different(draw, draw.choice((1, 2, 3, 3, 4)))
        exchanges: list[Exchange] = []
        for _ in range(draw.randint(3, 8)):
            exchanges += _of_session(draw, known, skills)
        return Talk(exchanges, tools=tuple(each.tool for each in known))

    return talk


def _of_session(draw: SeededDraw, known: list[Use], skills: list[Skill]) -> list[Exchange]:
    kind, tool = draw.random(), draw.choice(known)
    if kind < 0.1:
        return _plain(draw, skills).exchanges
    if kind < 0.17:
        return [_refused(draw, different(draw, len(known) + 1, known)[-1])]
    if kind < 0.3 and len(known) > 1:
        return [_two(draw, *draw.sample(known, 2))]
    if tool.kind in kinds.LOOKUPS:
        if kind < 0.42:
            return [_both(draw, tool)]
        if kind < 0.48:
            return _incomplete(draw, tool)
        if kind < 0.55:
            return [asked(draw, tool), _again(draw, tool)]
    return [asked(draw, tool)]


def beside(skills: list[Skill]) -> Skill:
    """The skill of answering without a call what needs none."""

    def plain(draw: SeededDraw) -> Talk:
        exchanges = _plain(draw, skills).exchanges
        first = use(draw)
        if draw.chance(0.5) and not draw.held:
            called = asked(draw, first)
            exchanges = [called, *exchanges] if draw.chance(0.5) else [*exchanges, called]
        return Talk(exchanges, tools=offered(draw, [first], draw.choice((0, 0, 1, 2))))

    return plain


def _plain(draw: SeededDraw, skills: list[Skill]) -> Talk:
    while not (talk := draw.choice(skills)(draw)).is_plain:
        pass
    return talk


def thought_over(draw: SeededDraw) -> Talk:
    """A call after a thought."""
    talk = calling(draw)
    (first,) = talk.exchanges[:1]
    thought = f"The user asks: {first.question} I can call {first.calls[0].name}."
    return replace(talk, exchanges=[replace(first, thought=thought)], thinking=True)


def tool_of(kind: ToolKind) -> SampleTool:
    properties = {slot.names[0]: {"type": slot.type} for slot in kind.slots}
    return SampleTool(kind.names[0], kind.about[0], properties, tuple(properties))


def _asked(draw: SeededDraw, kind: ToolKind) -> Exchange:
    values = [slot.make(draw) for slot in kind.slots]
    tool, question = tool_of(kind), draw.choice(kind.asks).format(*values)
    arguments = dict(zip(tool.properties, values, strict=True))
    return Exchange(question, "", calls=(SampleCall(tool.name, arguments),))


def written_calling(draw: SeededDraw) -> Talk:
    kind = draw.choice(kinds.HELD_OUT)
    others = [each for each in draw.sample(kinds.HELD_OUT, 3) if each is not kind]
    tools = [kind, *others[: draw.randint(0, 2)]]
    draw.shuffle(tools)
    return Talk([_asked(draw, kind)], tools=tuple(map(tool_of, tools)))


def written_without(draw: SeededDraw) -> Talk:
    """Asks some tools for what only another one can do."""
    wanted, *others = draw.sample(kinds.HELD_OUT, draw.randint(2, 4))
    question = _asked(draw, wanted).question
    return Talk([said(question, NO_TOOL, "no tool")], tools=tuple(map(tool_of, others)))
