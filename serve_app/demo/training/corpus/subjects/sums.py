"""Sums to 100, with their steps where they need some, in one fixed form, and thoughts about them.

A pair of numbers is held out as a whole, whatever the phrasing.
"""

from dataclasses import dataclass, replace
from random import Random

from serve_app.demo.training.corpus.chat import Exchange, Skill, Talk
from serve_app.demo.training.corpus.names import name
from serve_app.demo.training.corpus.split import SeededDraw, is_held
from serve_app.demo.training.corpus.texts import Texts, stopped

SIGNS = {"+": ("+", "plus"), "-": ("-", "minus"), "*": ("*", "times"), "/": ("/", "divided by")}
SUMS, THOUGHTS = Texts("arithmetic"), Texts("reasoning")
THINGS = SUMS.listed("things")
TOLD = (("+", "more"), ("-", "less"), ("*", "groups"))


@dataclass(frozen=True)
class Sum:
    a: int
    sign: str
    b: int

    @property
    def result(self) -> int:
        a, b = self.a, self.b
        return {"+": a + b, "-": a - b, "*": a * b, "/": a // max(1, b)}[self.sign]

    @property
    def is_held(self) -> bool:
        """Whether it is held out.

        Small sums and the tables to ten never are, because others are made of them.
        """
        known = min(self.a, self.b) < 2 or max(self.a, self.b, self.result) <= 20
        tables = {"*": max(self.a, self.b), "/": max(self.b, self.result)}
        a, b = sorted((self.a, self.b)) if self.sign in "+*" else (self.a, self.b)
        is_hard = not known and tables.get(self.sign, 11) > 10
        return is_hard and is_held(f"{a} {SIGNS[self.sign][1]} {b}")

    @property
    def stated(self) -> str:
        return f"{self.a} {SIGNS[self.sign][1]} {self.b} is {self.result}"

    @property
    def worked(self) -> str:
        """The steps and the result, or this alone where it is known by heart."""
        ways = {"+": _adding, "-": _subtracting, "*": _multiplying, "/": _dividing}
        steps = ways[self.sign](self.a, self.b)
        return f"{steps}. So {self.stated}." if steps else f"{self.stated}."


def any_sum(rng: Random) -> Sum:
    sign = rng.choice("+++---**//")
    if sign == "+":
        total = rng.randint(0, 20) if rng.random() < 0.3 else rng.randint(2, 100)
        a = rng.randint(0, total)
        return Sum(a, sign, total - a)
    if sign == "-":
        a = rng.randint(0, 20) if rng.random() < 0.3 else rng.randint(2, 100)
        return Sum(a, sign, rng.randint(0, a))
    small = rng.random() < 0.6
    a = rng.randint(0, 10) if small else rng.randint(2, 50)
    b = rng.randint(0, 10) if small else rng.randint(2, max(2, 100 // a))
    if a * b > 100:
        a, b = 10, 10
    if sign == "*":
        return Sum(a, sign, b) if rng.random() < 0.5 else Sum(b, sign, a)
    return Sum(a * max(1, b), sign, max(1, b))


def drawn_sum(draw: SeededDraw, signs: str = "+-*/") -> Sum:
    while True:
        found = any_sum(draw)
        if found.is_held == draw.held and found.sign in signs:
            return found


def _adding(a: int, b: int) -> str:
    """The tens, the ones, and both."""
    if a + b <= 20 or not (a % 10 and b % 10):
        return ""
    tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
    last = f"{a % 10} plus {b % 10} is {ones}, {tens} plus {ones} is {tens + ones}"
    if a < 10 or b < 10:
        return last
    return f"{a // 10 * 10} plus {b // 10 * 10} is {tens}, {last}"


def _subtracting(a: int, b: int) -> str:
    """First the tens, then down to the next ten, then the rest."""
    if a <= 20:
        return ""
    said, ones = list[str](), b % 10
    parts = [b - ones, a % 10, ones - a % 10] if a % 10 < ones else [b - ones, ones]
    for part in filter(None, parts):
        said.append(f"{a} minus {part} is {a - part}")
        a -= part
    return ", ".join(said) if len(said) > 1 else ""


def _multiplying(a: int, b: int) -> str:
    big, small = max(a, b), min(a, b)
    if big <= 10 or small < 2 or big % 10 == 0:
        return ""
    tens, ones = big // 10 * 10, big % 10
    parts = f"{tens} times {small} is {tens * small}, {ones} times {small} is {ones * small}"
    return f"{parts}, {tens * small} plus {ones * small} is {big * small}"


def _dividing(a: int, b: int) -> str:
    """How often it fits: ten times and more, then the rest."""
    if b < 2:
        return ""
    result = a // b
    tens = result // 10 * 10
    if tens in (0, result):
        return f"{b} times {result} is {a}"
    rest = a - tens * b
    first = f"{b} times {tens} is {tens * b}, {a} minus {tens * b} is {rest}"
    return f"{first}, {b} times {result - tens} is {rest}, {tens} plus {result - tens} is {result}"


def arithmetic(draw: SeededDraw) -> Talk:
    if draw.chance(0.2):
        return Talk([_told(draw)])
    asked = drawn_sum(draw)

    def written(draw: SeededDraw) -> str:
        if draw.chance(0.2):
            return f"{asked.a}{asked.sign}{asked.b}"
        return f"{asked.a} {draw.choice(SIGNS[asked.sign])} {asked.b}"

    fill = {"worked": asked.worked, "stated": asked.stated, "result": asked.result}
    return Talk([SUMS.said(draw, "asks", written, **fill)])


def _told(draw: SeededDraw) -> Exchange:
    sign, section = draw.choice(TOLD)
    asked = drawn_sum(draw, sign)
    while min(asked.a, asked.b, asked.result) < 2:
        asked = drawn_sum(draw, sign)
    fill = {"a": asked.a, "b": asked.b, "worked": asked.worked, "result": asked.result}
    return SUMS.said(draw, section, t=draw.choice(THINGS), n=name, **fill)


def _two_steps(draw: SeededDraw, is_story: bool) -> Exchange:
    least = 2 if is_story else 0
    while True:
        first = drawn_sum(draw, "+" if is_story else "+-")
        sign = "-" if is_story else draw.choice("+-")
        second = Sum(first.result, sign, draw.randint(1, 30))
        is_ours = draw.held or not second.is_held
        is_small = least <= second.result <= 100 and min(first.a, first.b) >= max(1, least)
        if is_ours and is_small:
            break
    fill: dict[str, object] = {"a": first.a, "b": first.b, "c": second.b, "r": second.result}
    if is_story:
        fill |= {"x": draw.choice(THOUGHTS.listed("things")), "n": name(draw)}
    else:
        fill |= {"s": first.sign, "t": second.sign}
    asked = THOUGHTS.said(draw, "story" if is_story else "two", **fill)
    thought = f"First: {first.worked}\nThen: {second.worked}"
    return replace(asked, thought=thought, expect=replace(asked.expect, thinks=True))


def reasoning(draw: SeededDraw) -> Talk:
    """Asks for thoughts by the template's switch or in words; else the steps are in the answer."""
    asked = _two_steps(draw, draw.choice((False, True)))
    way = draw.random()
    if way < 0.6:
        return Talk([asked], thinking=True)
    if way < 0.8:
        question = THOUGHTS.ask(draw, "asked", stopped(asked.question))
        return Talk([replace(asked, question=question)])
    answer = f"{asked.thought} {asked.answer}".replace("\n", " ")
    expect = replace(asked.expect, thinks=False)
    return Talk([replace(asked, thought="", answer=answer, expect=expect)])


def thoughtful(skills: list[Skill]) -> Skill:
    """The skill of thinking, when asked to, about what others ask."""

    def think(draw: SeededDraw) -> Talk:
        talk = draw.choice(skills)(draw)
        while not talk.is_plain or len(talk.exchanges) > 3:
            talk = draw.choice(skills)(draw)
        *before, last = talk.exchanges
        thought = f'The user says: "{last.question}" I know what to answer.'
        thinking, question = draw.chance(0.7), last.question
        if not thinking:
            question = THOUGHTS.ask(draw, "asked", stopped(question))
        expect = replace(last.expect, thinks=True)
        changed = replace(last, question=question, thought=thought, expect=expect)
        return replace(talk, exchanges=[*before, changed], thinking=thinking)

    return think
