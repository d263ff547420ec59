"""Conversations with tools: whether to call, what with, several at once, and what came of it."""

from collections.abc import Sequence
from dataclasses import replace

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
from serve_app.demo.training.corpus.phrases import capital, stopped
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts
from serve_app.demo.training.corpus.tools.kinds import LOOKUPS
from serve_app.demo.training.corpus.tools.use import Use, use
from serve_app.demo.training.corpus.tools.values import FOUND, NOUNS

CALLS = Texts("calls")
# measures that a question of a conversion does not name
GENERIC = frozenset(NOUNS.listed("measures"))
FAILURES = ("not found", "no connection", "access denied", "timed out", "unknown name", "try later")
NO_TOOL = "I am sorry, I have no tool for that."


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
    found = draw.choice(FOUND)(draw)
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
    if tool.kind in LOOKUPS:
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
        tool = use(draw, draw.choice(LOOKUPS))
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
    tool = use(draw, draw.choice(LOOKUPS))
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
    if tool.kind in LOOKUPS:
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
