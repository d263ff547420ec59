"""The training text: endless chats composed of small skills, the same for the same seed.

What `cases` asks for evaluation is never among them: see `split`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from serve_app.demo.training.corpus.chat import (
    Chat,
    Exchange,
    Expect,
    SampleCall,
    SampleTool,
    Talk,
    Turn,
)
from serve_app.demo.training.corpus.skills import EARLY, EVALUATED, SKILLS
from serve_app.demo.training.corpus.split import SeededDraw, normal
from serve_app.demo.training.corpus.subjects.roles import briefly, usual
from serve_app.demo.training.corpus.texts import Texts, capital

__all__ = ["Case", "Chat", "Turn", "cases", "chats", "talks"]
ENDS = ("??", "!", " ?", "...")
LEADS = Texts("chats").listed("leads")
MAX_EXCHANGES = 12  # of one chat
QUESTION = re.compile(r"(What|What's|Which|Who|How|Where|When|Why)\b[^.?!\n]*\.")


@dataclass(frozen=True)
class Case:
    """A conversation to go on with, and what a right reply is.

    `calls` are the calls to be made, none at all where it is empty; None where to call is no
    question: there are no tools, or they have been called. With `strict` the server is asked to
    hold calls to the definitions, as OpenAI's clients do.
    """

    skill: str
    turns: tuple[Turn, ...]
    tools: tuple[SampleTool, ...]
    thinking: bool
    calls: tuple[SampleCall, ...] | None
    expect: Expect
    strict: bool = False

    def messages(self) -> list[dict[str, object]]:
        return [turn.message() for turn in self.turns]

    def described_tools(self) -> list[dict[str, object]] | None:
        tools = [replace(tool, closed=tool.closed or self.strict) for tool in self.tools]
        return [tool.described() for tool in tools] or None


def chats(seed: int | str, shares: Mapping[str, float] = EARLY) -> Iterator[Chat]:
    """Yields chats of some skills, each drawn as often as its share says."""
    draw = SeededDraw(seed)
    while True:
        yield _chat(draw, shares)


def talks(seed: int | str, name: str) -> Iterator[Chat]:
    """Chats of one skill."""
    draw, skill = SeededDraw(f"{seed} {name}"), SKILLS[name]
    while True:
        yield _composed(draw, [skill(draw)])


def cases(skill: str, count: int, seed: int = 0) -> list[Case]:
    """Different ones, held out from training by construction, and what comes after their calls."""
    draw, found = SeededDraw(f"{seed} {skill}", held=True), dict[str, list[Case]]()
    for _ in range(20 * count):
        drawn = list(_cases(skill, draw.choice(EVALUATED[skill])(draw)))
        asked = drawn[0]
        texts = [normal(turn.text) for turn in asked.turns]
        found.setdefault(repr((texts, asked.tools)), drawn)
        if len(found) >= count:
            break
    return [case for drawn in found.values() for case in drawn]


def _chat(draw: SeededDraw, shares: Mapping[str, float]) -> Chat:
    count = draw.choices((1, 2, 3, 4, 8), (50, 24, 14, 9, 3))[0]
    drawn = [_drawn(draw, shares)]
    while len(drawn) < count and drawn[-1].is_plain:
        talk = _drawn(draw, shares)
        if talk.is_plain:
            drawn.append(talk)
    return _composed(draw, drawn)


def _drawn(draw: SeededDraw, shares: Mapping[str, float]) -> Talk:
    name = draw.choices(tuple(shares), tuple(shares.values()))[0]
    return SKILLS[name](draw)


def _composed(draw: SeededDraw, drawn: list[Talk]) -> Chat:
    exchanges = [written(each) for talk in drawn for each in talk.exchanges][:MAX_EXCHANGES]
    system = drawn[0].system or usual(draw)
    turns = [Turn("system", system)] if system else []
    for exchange in exchanges:
        turns += typed(draw, exchange).turns()
    return Chat(turns, drawn[0].tools, drawn[0].thinking)


def written(exchange: Exchange) -> Exchange:
    """Returns the exchange as a person would write it with care."""
    question = capital(exchange.question)
    if QUESTION.fullmatch(question):
        question = f"{question[:-1]}?"
    return replace(exchange, question=question)


def typed(draw: SeededDraw, exchange: Exchange) -> Exchange:
    """Returns the exchange as a person would type it: asked for briefly, or written carelessly."""
    if exchange.exact:
        return exchange
    if exchange.short and not exchange.thought and draw.chance(0.06):
        exchange = briefly(draw, exchange)
    rough = _rough(draw, exchange.question)
    first = rough.split()[0].rstrip(":,")
    values = [str(value) for call in exchange.calls for value in call.arguments.values()]
    if any(value.casefold().startswith(first.casefold()) for value in values):
        return exchange  # its letters are an argument's
    if draw.chance(0.05):
        rough = f"{draw.choice(LEADS)}{draw.choice((':', ',', ' -'))} {rough}"
    return replace(exchange, question=rough)


def _rough(draw: SeededDraw, text: str) -> str:
    kind = draw.random()
    if kind < 0.6 or "\n" in text or '"' in text:
        return text
    if kind < 0.75:
        return text.rstrip("?.!")
    if kind < 0.81:
        return text.rstrip("?.!") + draw.choice(ENDS)
    lower = text[:1].lower() + text[1:]
    return lower if kind < 0.87 else lower.rstrip("?.!")


def _cases(skill: str, talk: Talk) -> Iterator[Case]:
    """The last exchange is asked, and what its tools have said."""
    *before, last = map(written, talk.exchanges)
    turns = [Turn("system", talk.system)] if talk.system else []
    turns += [turn for exchange in before for turn in exchange.turns()]
    turns.append(Turn("user", last.question))
    calls = last.calls if talk.tools else None
    if not (talk.tools and last.calls):
        yield Case(skill, tuple(turns), talk.tools, talk.thinking, calls, last.expect)
        return
    yield Case(skill, tuple(turns), talk.tools, talk.thinking, calls, Expect())
    if last.results:
        asked = (*turns, *last.turns()[1:-1])
        yield Case("results of tools", asked, talk.tools, talk.thinking, None, last.expect)
