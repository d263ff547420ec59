"""Spelling, reversing and counting letters, one letter at a time."""

from random import Random

from serve_app.demo.training.corpus.chat import Exchange, Talk, one, said
from serve_app.demo.training.corpus.names import NAMES, TOWNS, word
from serve_app.demo.training.corpus.phrases import listed, patterns
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.numbers import ITEMS

SPELL = patterns("""
[|Please ]spell [the word |]{q}{w}{q}[|.|, please.| for me.| letter by letter.]
How [do you|do I|would you] [spell|write] {q}{w}{q}[| letter by letter]?
How is {q}{w}{q} [spelled|written]?
[Can|Could] you spell {q}{w}{q}[| for me]?
[Write|Say|Give me|Tell me] the letters of {q}{w}{q}[|.]
[What are the letters of|Which letters are in] {q}{w}{q}?
""")
BACK = patterns("""
[|Please ]spell {q}{w}{q} [backwards|in reverse][|.|, please.]
[Reverse|Turn around] the [word|letters of|letters in] {q}{w}{q}[|.]
[Write|Say|Give me] {q}{w}{q} backwards[|, letter by letter][|.]
[What is|What's] {q}{w}{q} [backwards|in reverse|spelled backwards]?
""")
COUNT = patterns("""
How many letters [are|are there] in [the word |]{q}{w}{q}?
How many letters does [the word |]{q}{w}{q} have?
[Count|Count up|Tell me the number of] the letters [of|in] {q}{w}{q}[|.]
How long is the word {q}{w}{q}?
""")
FIRST = patterns("""
[What|Which] is the {p} letter of {q}{w}{q}?
[Tell me|Give me|Name|Say] the {p} letter [of|in] {q}{w}{q}[|.]
With [which|what] letter does {q}{w}{q} {v}?
[Which|What] letter does {q}{w}{q} {v} with?
""")
SPELLED_WORDS = listed("""
apple, river, garden, stone, paper, ocean, tiger, bread, cloud, lemon, silver, forest, candle, \
table,
winter, bridge, rocket, pencil, robot, castle, dragon, mirror, coffee, ticket, summer, flower, \
horse,
mountain, island, desert, planet, school, friend, music, orange, purple, yellow, kitchen, \
window, chair,
monkey, rabbit, spider, turtle, butter, cheese, pepper, sugar, water, fire, light, night, \
morning, week,
happy, clever, quiet, gentle, brave, hello, model, cache, token, server, router, engine, batch, \
page,
queue, train, plane, street, market, doctor, teacher, farmer, baker, sailor, pirate, wizard, ghost,
number, letter, story, poem, joke, answer, question, reason, minute, hour, second, month, year, \
world
""")


def _any_word(rng: Random) -> str:
    return rng.choice(rng.choice((SPELLED_WORDS, SPELLED_WORDS, ITEMS, NAMES, TOWNS)))


def _word(draw: SeededDraw) -> str:
    while True:
        found = word(draw) if draw.chance(0.3) else draw.new(_any_word)
        if len(found) <= 9:
            return found


def _asked(draw: SeededDraw, asks: tuple[str, ...], text: str, **more: str) -> str:
    question = draw.ask(asks).format(w=text, q=draw.choice(('"', "'", "", "")), **more)
    return question[0].upper() + question[1:]


def spelled(text: str) -> str:
    return "-".join(text.lower())


def letters(draw: SeededDraw) -> Talk:
    return one(draw.choice((_spell, _spell, _back, _count, _first))(draw))


def _spell(draw: SeededDraw) -> Exchange:
    text = _word(draw)
    return said(_asked(draw, SPELL, text), f"{spelled(text)}.", spelled(text))


def _back(draw: SeededDraw) -> Exchange:
    text = _word(draw)
    answer = f"{spelled(text)}, and backwards: {spelled(text[::-1])}."
    return said(_asked(draw, BACK, text), answer, spelled(text[::-1]))


def _count(draw: SeededDraw) -> Exchange:
    text = _word(draw)
    counted = ", ".join(f"{at} {letter}" for at, letter in enumerate(text.lower(), 1))
    answer = f"{counted}. It has {len(text)} letters."
    return said(_asked(draw, COUNT, text), answer, f"has {len(text)} letters")


def _first(draw: SeededDraw) -> Exchange:
    text, first = _word(draw), draw.chance(0.6)
    place, verb = ("first", "begin") if first else ("last", "end")
    letter = text[0 if first else -1].lower()
    question = _asked(draw, FIRST, text, p=place, v=verb)
    return said(question, f"{spelled(text)}. The {place} letter is {letter}.", f"is {letter}")
