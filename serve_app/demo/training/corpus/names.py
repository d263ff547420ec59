"""Names and words without end: first names, places, and words that nobody has ever read.

Invented ones make the model copy what it is told; remembering does not help it.
"""

from random import Random

from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts, capital

WORDS = Texts("names")
THINGS, NAMES, TOWNS, ITEMS = map(WORDS.listed, ("things", "names", "towns", "items"))
COLOURS, JOBS = map(WORDS.listed, ("colours", "jobs"))
PARTS = [word.lower() for word in (*NAMES, *TOWNS, *THINGS)]
STARTS, MIDDLES, ENDS, BETWEEN = map(WORDS.listed, ("starts", "middles", "ends", "between"))


def _invented(rng: Random) -> str:
    while True:
        made = _glued(rng) if rng.random() < 0.5 else _syllables(rng)
        if 3 < len(made) < 13:
            return made


def _glued(rng: Random) -> str:
    """Glues parts of known words, so that whatever tokens words have, all of them get copied."""
    first, last = rng.choice(PARTS), rng.choice(PARTS)
    return first[: rng.randint(2, len(first))] + last[rng.randint(0, len(last) - 2) :]


def _syllables(rng: Random) -> str:
    word = rng.choice(STARTS) + rng.choice(MIDDLES[:8])
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        word += rng.choice(BETWEEN) + rng.choice(MIDDLES[:5])
    return word + rng.choice(ENDS if rng.random() < 0.7 else ["", "o", "a", "i"])


def word(draw: SeededDraw) -> str:
    """One that means nothing."""
    return draw.new(_invented)


def name(draw: SeededDraw) -> str:
    return draw.one(NAMES) if draw.chance(0.6) else capital(word(draw))


def town(draw: SeededDraw) -> str:
    return draw.one(TOWNS) if draw.chance(0.55) else capital(word(draw))


def code(draw: SeededDraw) -> str:
    """An identifier, as orders, flights and rooms have."""
    return draw.new(_code)


def _code(rng: Random) -> str:
    letters = "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 5)))
    return f"{letters}{rng.choice(('', '-'))}{digits}"
