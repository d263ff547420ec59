"""Conversations that look back: what the user told of themselves, and what they corrected."""

from collections.abc import Callable
from dataclasses import dataclass

from serve_app.demo.training.corpus.chat import Exchange, Talk, said
from serve_app.demo.training.corpus.names import COLOURS, JOBS, code, name, town, word
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts, capital, stopped

MEMORY = Texts("memory")
OKS = MEMORY.lines("oks")
MAKERS: dict[str, Callable[[SeededDraw], str]] = {
    "name": name,
    "town": town,
    "title": lambda draw: capital(word(draw)),
    "age": lambda draw: str(draw.new(lambda rng: rng.randint(6, 99))),
    "code": lambda draw: code(draw) if draw.chance(0.6) else word(draw),
}
LISTS = {"colours": COLOURS, "jobs": JOBS}
LISTS |= {section: MEMORY.listed(section) for section in ("foods", "animals")}


@dataclass(frozen=True)
class Thing:
    """Something that can be told, asked for and answered, in the words of the topic `said`."""

    key: str
    said: str
    values: str  # a maker, or a list of words of which some are drawn
    kinds: tuple[str, ...]
    unknown: str

    def value(self, draw: SeededDraw) -> str:
        if self.values in MAKERS:
            return MAKERS[self.values](draw)
        # Mostly a word that is not in the list, so that it has to be read.
        return draw.choice(LISTS[self.values]) if draw.chance(0.4) else word(draw)


def _thing(row: list[str]) -> Thing:
    key, topic, values, kinds, unknown = row
    return Thing(key, topic, values, tuple(kind.strip() for kind in kinds.split(",")), unknown)


THINGS = list(map(_thing, MEMORY.table("things")))


@dataclass(frozen=True)
class Told:
    thing: Thing
    kind: str
    value: str

    def tell(self, draw: SeededDraw) -> Exchange:
        section = f"{self.thing.said} told"
        return self._heard(draw, capital(MEMORY.ask(draw, section, k=self.kind, v=self.value)))

    def fix(self, draw: SeededDraw) -> Exchange:
        section = "name fixed" if self.thing.key == "name" else "fixed"
        return self._heard(draw, MEMORY.ask(draw, section, k=self.kind, v=self.value))

    def _heard(self, draw: SeededDraw, question: str) -> Exchange:
        if self.thing.key == "name":
            return said(question, f"Nice to meet you, {self.value}!", self.value, exact=True)
        known = MEMORY.topic(f"{self.thing.said} asked").answers[0]
        answer = known.format(k=self.kind, v=self.value)
        answer = f"So {answer[0].lower()}{answer[1:]} {draw.choice(OKS)}"
        return said(question, answer, self.value, exact=True)

    def ask(self, draw: SeededDraw) -> Exchange:
        return MEMORY.said(draw, f"{self.thing.said} asked", k=self.kind, v=self.value)

    def other(self, draw: SeededDraw) -> "Told":
        value = self.value
        while value == self.value:
            value = self.thing.value(draw)
        return Told(self.thing, self.kind, value)


def several(draw: SeededDraw, count: int) -> list[Told]:
    """Draws facts about different things; a color is a colour."""
    found: list[Told] = []
    while len(found) < count:
        thing = draw.choice(THINGS)
        new = Told(thing, draw.choice(thing.kinds), thing.value(draw))
        kinds = [each.kind for each in found if each.thing == thing]
        if new.kind not in kinds and not (kinds and thing.key == "colour"):
            found.append(new)
    return found


def memory(draw: SeededDraw) -> Talk:
    """Told, perhaps corrected, perhaps with other things between, and asked for."""
    known = several(draw, draw.choice((1, 1, 2, 2, 3)))
    exchanges = [each.tell(draw) for each in known]
    if draw.chance(0.25):
        known[-1] = known[-1].other(draw)
        exchanges.append(known[-1].fix(draw))
    draw.shuffle(known)
    asked = [each.ask(draw) for each in known[: draw.choice((1, 1, 2, 3))]]
    return Talk([*exchanges, *asked])


def at_once(draw: SeededDraw) -> Talk:
    """Told and asked for in one message."""
    known = several(draw, draw.choice((1, 1, 2)))
    ask = draw.choice(known).ask(draw)
    tells = " ".join(stopped(each.tell(draw).question) for each in known)
    return Talk([said(f"{tells} {ask.question}", ask.answer, *ask.expect.says, short=ask.short)])


def not_told(draw: SeededDraw) -> Talk:
    """Asks for something before it was told, or when something else was."""
    missing, *known = several(draw, draw.choice((1, 1, 2)))
    answer = missing.thing.unknown.format(k=missing.kind)
    asked = said(missing.ask(draw).question, answer, "do not know")
    return Talk([*(each.tell(draw) for each in known), asked])
