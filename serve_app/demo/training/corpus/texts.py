"""The words and sentences of the corpus, which stand in text files in the folder `data`.

A file has sections, each a line `# name` and what follows it: a list with commas, a table with
bars, or topics. A topic has phrasings of a question, in which `[a|b|]` stands for one of its parts,
and after a mark at the beginning of a line: `=` an answer, `!` or `~` all or any of the words of a
right one, `>` the answer in short. Beside them is the small grammar that makes words into phrases.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

from serve_app.demo.training.corpus.chat import Exchange, Expect, Skill, Talk
from serve_app.demo.training.corpus.split import SeededDraw

CHOICE = re.compile(r"\[([^\]]*)\]")


@lru_cache(maxsize=4096)
def expand(pattern: str) -> tuple[str, ...]:
    """All texts of a pattern: `[a|b|]` stands for one of its parts, which may be empty."""
    parts = CHOICE.split(pattern)
    assert not any(mark in part for part in parts for mark in "[]"), pattern
    options = [part.split("|") if at % 2 else [part] for at, part in enumerate(parts)]
    return tuple(" ".join("".join(chosen).split()) for chosen in product(*options))


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def stopped(text: str) -> str:
    """Makes a whole sentence of a text, so that another may follow."""
    return text if text[-1] in ".?!" else f"{text}."


def article(noun: str) -> str:
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"


def plural(noun: str) -> str:
    if noun.endswith("news"):
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"


def joined(items: list[str], last: str = "and") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def bullets(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def numbered(items: list[str]) -> str:
    return "\n".join(f"{at}. {item}" for at, item in enumerate(items, 1))


DATA = Path(__file__).with_name("data")
SECTION = re.compile(r"^# ([\w ]+)(?::.*)?$\n", re.MULTILINE)


@dataclass(frozen=True)
class Topic:
    """A question and its answers. Where nothing marks a right answer, it has to be this one."""

    asks: tuple[str, ...]
    answers: tuple[str, ...]
    says: tuple[str, ...]
    any_of: tuple[str, ...]
    short: str

    def exchange(self, draw: SeededDraw) -> Exchange:
        """The question as it stands, with one of the answers."""
        expect = Expect(says=self.says, any_of=self.any_of)
        return Exchange(draw.ask(self.asks), draw.choice(self.answers), expect)

    def filled(
        self, draw: SeededDraw, args: Sequence[object], fill: Mapping[str, object]
    ) -> Exchange:
        """The question and its only answer, with values in their braces.

        A value may be a function of the draw, which draws after the phrasing.
        """
        ask = draw.ask(self.asks)
        args, fill = _drawn(draw, args, fill)

        def made(text: str) -> str:
            return text.format(*args, **fill)

        question, answer, short = capital(made(ask)), made(self.answers[0]), made(self.short)
        says, any_of = tuple(map(made, self.says)), tuple(map(made, self.any_of))
        if says or any_of or short:
            expect = Expect(says=says or (() if any_of else (short,)), any_of=any_of)
            return Exchange(question, answer, expect, short)
        return Exchange(question, answer, Expect(exactly=answer), exact=True)


class Texts:
    """The sections of one file."""

    def __init__(self, name: str) -> None:
        _, *parts = SECTION.split((DATA / f"{name}.txt").read_text(encoding="utf-8"))
        self._sections = dict(zip(parts[::2], parts[1::2], strict=True))
        self._topics: dict[str, Topic] = {}

    def lines(self, section: str) -> list[str]:
        return _lines(self._sections[section])

    def table(self, section: str) -> list[list[str]]:
        return [[cell.strip() for cell in line.split("|")] for line in self.lines(section)]

    def listed(self, section: str) -> list[str]:
        return _listed(" ".join(self.lines(section)))

    def topics(self, section: str) -> list[Topic]:
        """Topics between empty lines, each with answers that have the words they should have."""
        found = [_topic(_lines(block)) for block in self._sections[section].strip().split("\n\n")]
        for topic in found:
            assert topic.asks, topic
            for answer in map(str.casefold, topic.answers):
                assert all(word.casefold() in answer for word in topic.says), topic
                assert not topic.any_of or any(w.casefold() in answer for w in topic.any_of), topic
        return found

    def topic(self, section: str) -> Topic:
        if section not in self._topics:
            self._topics[section] = _topic(self.lines(section))
        return self._topics[section]

    def asks(self, section: str) -> tuple[str, ...]:
        return self.topic(section).asks

    def ask(self, draw: SeededDraw, section: str, *args: object, **fill: object) -> str:
        """A phrasing, with values in its braces as `Topic.filled` has them."""
        phrasing = draw.ask(self.asks(section))
        args, fill = _drawn(draw, args, fill)
        return phrasing.format(*args, **fill)

    def said(self, draw: SeededDraw, section: str, *args: object, **fill: object) -> Exchange:
        return self.topic(section).filled(draw, args, fill)


def _drawn(
    draw: SeededDraw, args: Sequence[object], fill: Mapping[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    drawn = tuple(value(draw) if callable(value) else value for value in args)
    return drawn, {key: value(draw) if callable(value) else value for key, value in fill.items()}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _topic(lines: list[str]) -> Topic:
    parts: dict[str, list[str]] = {mark: [] for mark in "?=!~>"}
    for line in lines:
        mark, _, rest = line.partition(" ")
        if mark in parts:
            parts[mark].append(rest)
        else:
            parts["?"].append(line)
    asks = tuple(phrase for pattern in parts["?"] for phrase in expand(pattern))
    says, any_of = (tuple(w for words in parts[mark] for w in _listed(words)) for mark in "!~")
    return Topic(asks, tuple(parts["="]), says, any_of, "".join(parts[">"]))


def closed(texts: Texts, section: str) -> Skill:
    """The skill of a closed list of topics."""
    topics = texts.topics(section)
    return lambda draw: Talk([draw.choice(topics).exchange(draw)])
