"""Counting, sorting, comparing, even and odd, halves and doubles."""

from serve_app.demo.training.corpus.chat import Exchange, Talk, one, said
from serve_app.demo.training.corpus.names import NAMES, word
from serve_app.demo.training.corpus.phrases import capital, listed, patterns
from serve_app.demo.training.corpus.split import SeededDraw

UP = patterns("""
[|Please ][count|count up] from {a} to {b}[|.|!]
[Can|Could|Will] you count from {a} to {b}?
[List|Write|Say|Give me|Tell me] [the numbers|all numbers|every number] from {a} to {b}[|.]
""")
TO = patterns("""
[|Please |Now ][count|count up] to {b}[|.|!| for me.]
[Can|Could] you count to {b}?
""")
DOWN = patterns("""
[|Please |Now ]count [down|backwards] from {a}[|.|!| to 1.]
[Can|Could] you count [down|backwards] from {a}?
""")
SORT = patterns("""
[Sort|Order|Arrange] [these numbers|the numbers|these|this list][|, please]: {l}
[Sort|Order|Arrange] {l}[|.| for me.| from small to large.| in ascending order.]
[Put|Bring] [these numbers|these] [in order|in ascending order|from small to large]: {l}
[Can|Could] you sort {l}?
""")
SORT_DOWN = patterns("""
[Sort|Order|Arrange] [these numbers|these|this list] [from large to small|in descending \
order|downwards]: {l}
[Sort|Order|Arrange] {l} [from large to small|in descending order|downwards].
[Put|Bring] [these numbers|these] [in descending order|from large to small]: {l}
""")
REVERSE = patterns("""
[Reverse|Turn around] [this list|the list|the order of|this][|, please]: {l}
[Reverse|Turn around] {l}[|.]
[Write|Say|Give me|Put] {l} [in reverse|backwards|in reverse order|from last to first].
""")
ALPHABET = patterns("""
[Sort|Order|Arrange|Put] [these words|these names|these] [alphabetically|in alphabetical \
order|by the alphabet]: {l}
[Sort|Order|Arrange] {l} [alphabetically|in alphabetical order|from A to Z].
""")
HOW_MANY = patterns("""
How many [items|words|things] are in [this list|the list]: {l}?
[Count|Count up] [these items|the items|these words|these]: {l}
How [long|big] is [this list|the list]: {l}?
""")
COMPARE = patterns("""
[Which|What] is {w}[,|:] {a} or {b}?
[Which|What] number is {w}[,|:] {a} or {b}?
[Tell me the {w} number|Tell me which is {w}|Pick the {w} one|Name the {w} one]: {a} or {b}
""")
SUPERLATIVES = patterns("""
[What is|Which is|Find|Tell me|Name] the {w} [number of|of|in] {l}[?|.|]
[Which|What] number is the {w}: {l}?
""")
PARITY = patterns("""
Is {n} [even or odd|odd or even|an even or an odd number]?
[Tell me whether|Say whether|Do you know whether|I want to know whether] {n} is [even or odd|odd \
or even][|.]
[Even or odd|Odd or even]: {n}[|?]
""")
NEXT = patterns("""
[What|Which] number [comes|is] [right|directly|] {w} {n}?
[Tell me|Name|Give me] the number [right|directly|] {w} {n}[|.]
What [comes|is] {w} {n}?
""")
HALF = patterns("""
[What is|What's|Tell me|Give me|Find] half of {n}[?|.|]
[How much is|Calculate] half of {n}[?|]
""")
DOUBLE = patterns("""
[What is|What's|Tell me|Find] [double|twice] {n}[?|.|]
[How much is|Calculate] [double|twice] {n}[?|]
""")
ITEMS = listed("""
apple, river, moon, house, music, window, garden, stone, paper, ocean, tiger, bread, cloud, lemon,
banana, silver, forest, candle, winter, bridge, rocket, pencil, robot, castle, dragon, mirror, cat,
coffee, ticket, dog, book, door, key, ring, song, train, ship, plane, road, snow, wind, fish, tree
""")


def counting(draw: SeededDraw) -> Talk:
    kinds = (_up, _up, _down, _sorted, _sorted, _reversed, _alphabet, _how_many)
    return one(draw.choice(kinds)(draw))


def comparing(draw: SeededDraw) -> Talk:
    return one(draw.choice((_compare, _most, _parity, _next, _half))(draw))


def series(first: int, last: int) -> str:
    step = 1 if last >= first else -1
    return ", ".join(map(str, range(first, last + step, step)))


def _up(draw: SeededDraw) -> Exchange:
    a = 1 if draw.chance(0.4) else draw.randint(2, 80)
    b = a + draw.randint(2, 19)
    question = capital(draw.ask(UP if a > 1 or draw.chance(0.4) else TO).format(a=a, b=b))
    return said(question, f"{series(a, b)}.", series(a, b))


def _down(draw: SeededDraw) -> Exchange:
    a = draw.randint(3, 20)
    return said(capital(draw.ask(DOWN).format(a=a)), f"{series(a, 1)}.", series(a, 1))


def _numbers(draw: SeededDraw, least: int = 3, most: int = 6) -> list[int]:
    top = draw.choice((20, 100, 100))
    return draw.new(lambda rng: rng.sample(range(1, top), rng.randint(least, most)))


def _shown(items: list[int] | list[str]) -> str:
    return ", ".join(map(str, items))


def _sorted(draw: SeededDraw) -> Exchange:
    items, down = _numbers(draw), draw.chance(0.3)
    answer = _shown(sorted(items, reverse=down))
    question = draw.ask(SORT_DOWN if down else SORT).format(l=_shown(items))
    return said(question, f"{answer}.", answer)


def _words(draw: SeededDraw) -> list[str]:
    if draw.chance(0.4):
        return draw.some(NAMES, draw.randint(3, 4))
    if draw.chance(0.5):
        return sorted({word(draw) for _ in range(4)}, key=lambda each: draw.random())
    return draw.sample(ITEMS, draw.randint(3, 5))


def _reversed(draw: SeededDraw) -> Exchange:
    items = list(map(str, _numbers(draw))) if draw.chance(0.4) else _words(draw)
    answer = _shown(items[::-1])
    return said(draw.ask(REVERSE).format(l=_shown(items)), f"{answer}.", answer)


def _alphabet(draw: SeededDraw) -> Exchange:
    items = _words(draw)
    answer = _shown(sorted(items, key=str.casefold))
    return said(draw.ask(ALPHABET).format(l=_shown(items)), f"{answer}.", answer)


def _how_many(draw: SeededDraw) -> Exchange:
    items = _words(draw) + (_words(draw) if draw.chance(0.3) else [])
    counted = ", ".join(f"{at} {item}" for at, item in enumerate(items, 1))
    answer = f"{counted}. There are {len(items)}."
    return said(draw.ask(HOW_MANY).format(l=_shown(items)), answer, f"There are {len(items)}")


def _compare(draw: SeededDraw) -> Exchange:
    a, b = draw.new(lambda rng: rng.sample(range(101), 2))
    big = draw.chance(0.6)
    how = draw.choice(("bigger", "larger", "greater", "higher")) if big else "smaller"
    result = max(a, b) if big else min(a, b)
    question = draw.ask(COMPARE).format(a=a, b=b, w=how)
    answer = f"{result} is {how} than {a + b - result}."
    return said(question, answer, f"{result} is {how}", short=str(result))


def _most(draw: SeededDraw) -> Exchange:
    items, big = _numbers(draw), draw.chance(0.6)
    how = draw.choice(("largest", "biggest", "highest")) if big else "smallest"
    result = max(items) if big else min(items)
    question = draw.ask(SUPERLATIVES).format(w=how, l=_shown(items))
    return said(question, f"The {how} is {result}.", f"is {result}", short=str(result))


def _parity(draw: SeededDraw) -> Exchange:
    n = draw.new(lambda rng: rng.randint(0, 1000 if rng.random() < 0.4 else 100))
    kind = "odd" if n % 2 else "even"
    return said(draw.ask(PARITY).format(n=n), f"{n} is {kind}.", f"is {kind}", short=kind)


def _next(draw: SeededDraw) -> Exchange:
    n = draw.new(lambda rng: rng.randint(1, 99))
    after = draw.chance(0.5)
    where, other = ("after", n + 1) if after else ("before", n - 1)
    answer = f"The number {where} {n} is {other}."
    return said(draw.ask(NEXT).format(w=where, n=n), answer, f"is {other}", short=str(other))


def _half(draw: SeededDraw) -> Exchange:
    n = draw.new(lambda rng: rng.randint(1, 50))
    if draw.chance(0.5):
        answer = f"Half of {2 * n} is {n}."
        return said(draw.ask(HALF).format(n=2 * n), answer, f"is {n}", short=str(n))
    answer = f"Twice {n} is {2 * n}."
    return said(draw.ask(DOUBLE).format(n=n), answer, f"is {2 * n}", short=str(2 * n))
