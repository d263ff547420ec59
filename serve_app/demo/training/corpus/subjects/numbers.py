"""Counting, sorting, comparing, even and odd, halves and doubles, and the letters of words."""

from collections.abc import Sequence
from random import Random

from serve_app.demo.training.corpus.chat import Exchange, Talk
from serve_app.demo.training.corpus.names import ITEMS, NAMES, TOWNS, word
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts

NUMBERS, LETTERS = Texts("numbers"), Texts("letters")
SPELLED_WORDS = LETTERS.listed("spelled_words")


def counting(draw: SeededDraw) -> Talk:
    kinds = (_up, _up, _down, _sorted, _sorted, _reversed, _alphabet, _how_many)
    return Talk([draw.choice(kinds)(draw)])


def comparing(draw: SeededDraw) -> Talk:
    return Talk([draw.choice((_compare, _most, _parity, _next, _half))(draw)])


def _shown(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def _up(draw: SeededDraw) -> Exchange:
    a = 1 if draw.chance(0.4) else draw.randint(2, 80)
    b = a + draw.randint(2, 19)
    section = "up" if a > 1 or draw.chance(0.4) else "to"
    return NUMBERS.said(draw, section, a=a, b=b, r=_shown(range(a, b + 1)))


def _down(draw: SeededDraw) -> Exchange:
    a = draw.randint(3, 20)
    return NUMBERS.said(draw, "down", a=a, r=_shown(range(a, 0, -1)))


def _numbers(draw: SeededDraw) -> list[int]:
    top = draw.choice((20, 100, 100))
    return draw.new(lambda rng: rng.sample(range(1, top), rng.randint(3, 6)))


def _sorted(draw: SeededDraw) -> Exchange:
    items, down = _numbers(draw), draw.chance(0.3)
    result = _shown(sorted(items, reverse=down))
    return NUMBERS.said(draw, "sort_down" if down else "sort", l=_shown(items), r=result)


def _words(draw: SeededDraw) -> list[str]:
    if draw.chance(0.4):
        return draw.some(NAMES, draw.randint(3, 4))
    if draw.chance(0.5):
        words = dict.fromkeys(word(draw) for _ in range(4))  # a set's order is of its process
        return sorted(words, key=lambda each: draw.random())
    return draw.sample(ITEMS, draw.randint(3, 5))


def _reversed(draw: SeededDraw) -> Exchange:
    items = list(map(str, _numbers(draw))) if draw.chance(0.4) else _words(draw)
    return NUMBERS.said(draw, "reverse", l=_shown(items), r=_shown(items[::-1]))


def _alphabet(draw: SeededDraw) -> Exchange:
    items = _words(draw)
    ordered = sorted(items, key=str.casefold)
    return NUMBERS.said(draw, "alphabet", l=_shown(items), r=_shown(ordered))


def _how_many(draw: SeededDraw) -> Exchange:
    items = _words(draw) + (_words(draw) if draw.chance(0.3) else [])
    counted = _shown([f"{at} {item}" for at, item in enumerate(items, 1)])
    return NUMBERS.said(draw, "how_many", l=_shown(items), counted=counted, n=len(items))


def _compare(draw: SeededDraw) -> Exchange:
    a, b = draw.new(lambda rng: rng.sample(range(101), 2))
    big = draw.chance(0.6)
    how = draw.choice(("bigger", "larger", "greater", "higher")) if big else "smaller"
    result = max(a, b) if big else min(a, b)
    return NUMBERS.said(draw, "compare", a=a, b=b, w=how, r=result, other=a + b - result)


def _most(draw: SeededDraw) -> Exchange:
    items, big = _numbers(draw), draw.chance(0.6)
    how = draw.choice(("largest", "biggest", "highest")) if big else "smallest"
    result = max(items) if big else min(items)
    return NUMBERS.said(draw, "superlatives", w=how, l=_shown(items), r=result)


def _parity(draw: SeededDraw) -> Exchange:
    n = draw.new(lambda rng: rng.randint(0, 1000 if rng.random() < 0.4 else 100))
    return NUMBERS.said(draw, "parity", n=n, k="odd" if n % 2 else "even")


def _next(draw: SeededDraw) -> Exchange:
    n, after = draw.new(lambda rng: rng.randint(1, 99)), draw.chance(0.5)
    where, result = ("after", n + 1) if after else ("before", n - 1)
    return NUMBERS.said(draw, "next", w=where, n=n, r=result)


def _half(draw: SeededDraw) -> Exchange:
    n = draw.new(lambda rng: rng.randint(1, 50))
    if draw.chance(0.5):
        return NUMBERS.said(draw, "half", n=2 * n, r=n)
    return NUMBERS.said(draw, "double", n=n, r=2 * n)


def _any_word(rng: Random) -> str:
    return rng.choice(rng.choice((SPELLED_WORDS, SPELLED_WORDS, ITEMS, NAMES, TOWNS)))


def _word(draw: SeededDraw) -> str:
    while True:
        found = word(draw) if draw.chance(0.3) else draw.new(_any_word)
        if len(found) <= 9:
            return found


def letters(draw: SeededDraw) -> Talk:
    """Spelling, reversing and counting letters, one letter at a time."""
    kind, text = draw.choice(("spell", "spell", "back", "count", "first")), _word(draw)
    is_first = kind == "first" and draw.chance(0.6)
    low = text.lower()
    fill = {
        "p": "first" if is_first else "last",
        "v": "begin" if is_first else "end",
        "letter": low[0 if is_first else -1],
        "spelled": "-".join(low),
        "back": "-".join(low[::-1]),
        "counted": _shown([f"{at} {letter}" for at, letter in enumerate(low, 1)]),
        "n": len(text),
    }
    quote = ('"', "'", "", "")
    asked = LETTERS.said(draw, kind, w=text, q=lambda draw: draw.choice(quote), **fill)
    return Talk([asked])
