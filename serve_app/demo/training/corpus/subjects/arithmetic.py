"""Sums to 100, with their steps where they need some, in one fixed form.

A pair of numbers is held out as a whole, whatever the phrasing.
"""

from dataclasses import dataclass
from random import Random

from serve_app.demo.training.corpus.chat import Exchange, Talk, one, said
from serve_app.demo.training.corpus.names import name
from serve_app.demo.training.corpus.phrases import listed, patterns
from serve_app.demo.training.corpus.split import SeededDraw, is_held

SIGNS = {"+": ("+", "plus"), "-": ("-", "minus"), "*": ("*", "times"), "/": ("/", "divided by")}
ASKS = patterns("""
[What is|What's|How much is|How many is] {}?
[Calculate|Compute|Work out|Solve|Evaluate|Find] {}[|.]
[Please|Can you|Could you] [calculate|compute|work out|solve] {}[|?|.]
[|Tell me: |Quick: |Sum: ]{}[| =|?| = ?]
What [does|do] {} [make|give|equal]?
[Do you know what|Please tell me what|I need to know what|Tell me what] {} is[|.]
""")
THINGS = listed("""
apples, books, balls, coins, cookies, pens, eggs, cards, flowers, stamps, shells, stones, tickets,
candles, cups, keys, pears, plums, buttons, beads
""")
MORE = patterns("""
[I have|We have] {a} {t} and [get|buy|find|receive] {b} more. How many {t} [is that|are there now]?
{n} has {a} {t} and [gets|buys|finds|receives] {b} more. How many {t} [is that|are there now]?
There are {a} {t}, and [we add|Tom brings|I find] {b} more. How many {t} [is that|are there now]?
[I have|{n} has] {a} {t}, and [a friend|my sister|my brother|Tom] gives {b} more. How many {t} \
[is that|are there]?
""")
LESS = patterns("""
[I have|We have] {a} {t} and [lose|give away|sell|throw away] {b}. How many {t} are left?
{n} has {a} {t} and [loses|gives away|sells|throws away] {b}. How many {t} are left?
There are {a} {t}, and [we sell|Tom takes|I give away] {b}. How many {t} are left?
[I had|{n} had] {a} {t}, and {b} [went missing|were lost|were sold|were broken]. How many {t} were \
left?
""")
GROUPS = patterns("""
There are {a} [boxes|bags|baskets|shelves] with {b} {t} each. How many {t} are there[| in all]?
[I buy|{n} buys|We need] {a} [boxes|bags|packs] of {b} {t}. How many {t} is that?
""")


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
        return not known and tables.get(self.sign, 11) > 10 and is_held(self.key)

    @property
    def key(self) -> str:
        a, b = sorted((self.a, self.b)) if self.sign in "+*" else (self.a, self.b)
        return f"{a} {SIGNS[self.sign][1]} {b}"

    def __str__(self) -> str:
        return f"{self.a} {self.sign} {self.b}"


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


def steps(sum_: Sum) -> str:
    """The worked steps, or nothing where the result is known by heart."""
    a, b, result = sum_.a, sum_.b, sum_.result
    if sum_.sign == "+":
        return _adding(a, b)
    if sum_.sign == "-":
        return _subtracting(a, b)
    if sum_.sign == "*":
        return _multiplying(a, b)
    return _dividing(a, b, result)


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
    said_, ones = list[str](), b % 10
    parts = [b - ones, a % 10, ones - a % 10] if a % 10 < ones else [b - ones, ones]
    for part in filter(None, parts):
        said_.append(f"{a} minus {part} is {a - part}")
        a -= part
    return ", ".join(said_) if len(said_) > 1 else ""


def _multiplying(a: int, b: int) -> str:
    big, small = max(a, b), min(a, b)
    if big <= 10 or small < 2 or big % 10 == 0:
        return ""
    tens = big // 10 * 10
    parts = (
        f"{tens} times {small} is {tens * small}, {big % 10} times {small} is {big % 10 * small}"
    )
    return f"{parts}, {tens * small} plus {big % 10 * small} is {big * small}"


def _dividing(a: int, b: int, result: int) -> str:
    """How often it fits: ten times and more, then the rest."""
    if b < 2:
        return ""
    tens = result // 10 * 10
    if tens in (0, result):
        return f"{b} times {result} is {a}"
    rest = a - tens * b
    first = f"{b} times {tens} is {tens * b}, {a} minus {tens * b} is {rest}"
    return f"{first}, {b} times {result - tens} is {rest}, {tens} plus {result - tens} is {result}"


def stated(sum_: Sum) -> str:
    return f"{sum_.a} {SIGNS[sum_.sign][1]} {sum_.b} is {sum_.result}"


def worked(sum_: Sum) -> str:
    how = steps(sum_)
    return f"{how}. So {stated(sum_)}." if how else f"{stated(sum_)}."


def _written(draw: SeededDraw, sum_: Sum) -> str:
    if draw.chance(0.2):
        return str(sum_).replace(" ", "")
    return f"{sum_.a} {draw.choice(SIGNS[sum_.sign])} {sum_.b}"


def arithmetic(draw: SeededDraw) -> Talk:
    if draw.chance(0.2):
        return one(_told(draw))
    sum_ = drawn_sum(draw)
    question = draw.ask(ASKS).format(_written(draw, sum_))
    return one(said(question, worked(sum_), stated(sum_), short=str(sum_.result)))


def _told(draw: SeededDraw) -> Exchange:
    sign, asks = draw.choice((("+", MORE), ("-", LESS), ("*", GROUPS)))
    sum_ = drawn_sum(draw, sign)
    while min(sum_.a, sum_.b, sum_.result) < 2:
        sum_ = drawn_sum(draw, sign)
    thing = draw.choice(THINGS)
    question = draw.ask(asks).format(a=sum_.a, b=sum_.b, t=thing, n=name(draw))
    answer = f"{worked(sum_)} That is {sum_.result} {thing}."
    return said(question, answer, f"{sum_.result} {thing}")
