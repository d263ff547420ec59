"""Plain facts: things, countries, animals, colours, opposites, and lists of things of a kind."""

from collections.abc import Mapping
from dataclasses import replace

from serve_app.demo.training.corpus.chat import Exchange, Expect, Talk, said
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts, article, bullets, capital, joined, numbered

FACTS, PLACES, NATURE, WORDS = map(Texts, ("facts", "places", "nature", "words"))
THINGS, SINGLE = FACTS.table("things"), FACTS.table("single")
COUNTRIES, NOWHERE = PLACES.table("countries"), PLACES.listed("nowhere")
TWICE = {"London", "Washington"}  # capitals with two names of their country
COLOURED, MIXES = NATURE.table("things"), NATURE.table("mixes")
COLOURS = sorted({colour for _, colour in COLOURED})
LEGS = {"0": "no", "2": "two", "4": "four", "6": "six", "8": "eight"}
OPPOSITES = WORDS.table("opposites")
FIRSTS, SECONDS = {first for first, _ in OPPOSITES}, [second for _, second in OPPOSITES]
GROUPS = {name: items.split(", ") for name, items in WORDS.table("groups")}
COUNTS = {"two": 2, "three": 3, "3": 3, "four": 4, "4": 4, "five": 5, "5": 5, "2": 2}


def _animal(row: list[str]) -> Mapping[str, str]:
    name, young, sound, legs, food, home, kind = row
    return {
        "name": name,
        "a": article(name),
        "who": capital(article(name)),
        "young": young,
        "a_young": article(young),
        "sound": sound,
        "legs": LEGS[legs],
        "food": food,
        "home": home,
        "place": f"{'on' if home == 'a farm' else 'in'} {home}",
        "kind": kind,
        "a_kind": article(kind),
        "is_a": article("animal" if name == kind else kind),
    }


ANIMALS = list(map(_animal, NATURE.table("animals")))
# which animals are asked for, where not all are
ASKED = {
    "kind": [row for row in ANIMALS if row["name"] != row["kind"]],
    "who": [row for row in ANIMALS if row["sound"] not in ("-", "roar")],
}


def facts(draw: SeededDraw) -> Talk:
    if draw.chance(0.6):
        thing, answer = draw.choice(THINGS)
        return Talk([Exchange(FACTS.ask(draw, "asks", thing), answer, Expect(exactly=answer))])
    asks, answer, short = draw.choice(SINGLE)
    question = FACTS.ask(draw, "leads", lambda draw: draw.choice(asks.split(";")).strip())
    return Talk([Exchange(question, answer, Expect(exactly=answer), short)])


def capitals(draw: SeededDraw) -> Talk:
    country, city, _ = draw.choice(COUNTRIES)
    first = PLACES.said(draw, "asks", country, city=city)
    if draw.chance(0.15):
        first = replace(first, question=first.question.lower())
    if draw.chance(0.85):
        return Talk([first])
    other, town, _ = draw.choice(COUNTRIES)
    return Talk([first, PLACES.said(draw, "and", other, city=town)])


def places(draw: SeededDraw) -> Talk:
    kinds = ("reverse", "reverse", "where", "where", "true", "continents", "nowhere")
    kind = draw.choice(kinds)
    if kind == "nowhere":
        question = capital(PLACES.ask(draw, "asks", lambda draw: draw.choice(NOWHERE)))
        answer = "I am sorry, I do not know a capital for that place."
        return Talk([said(question, answer, "do not know")])
    if kind == "continents":
        return Talk([PLACES.said(draw, kind)])
    if kind == "true":
        (country, city, _), (_, other, _) = draw.sample(COUNTRIES, 2)
        claim = city if draw.chance(0.5) else other
        yes = "Yes" if claim == city else "No"
        return Talk([PLACES.said(draw, kind, c=claim, n=country, city=city, yes=yes)])
    rows = [row for row in COUNTRIES if kind == "where" or row[1] not in TWICE]
    country, city, continent = draw.choice(rows)
    fill = {"city": city, "country": country, "c": capital(country), "continent": continent}
    return Talk([PLACES.said(draw, kind, city if kind == "reverse" else country, **fill)])


def animals(draw: SeededDraw) -> Talk:
    kinds = ("sound", "sound", "young", "legs", "legs", "food", "home", "kind", "about", "who")
    kind = draw.choice(kinds)
    row = draw.choice(ASKED.get(kind, ANIMALS))
    if kind == "sound" and row["sound"] == "-":
        question = NATURE.ask(draw, kind, row["a"])
        return Talk([said(question, f"{row['who']} is a quiet animal.", "quiet")])
    asked = {"young": "name", "who": "sound"}.get(kind, "a")
    return Talk([NATURE.said(draw, kind, row[asked], **row)])


def colours(draw: SeededDraw) -> Talk:
    kind = draw.choice(("colour_of", "colour_of", "colour_of", "is_it", "mix", "rainbow"))
    if kind == "rainbow":
        return Talk([NATURE.said(draw, kind)])
    if kind == "mix":
        first, second, result = draw.choice(MIXES)
        if draw.chance(0.5):
            first, second = second, first
        return Talk([NATURE.said(draw, kind, first, second, c=capital(first), r=result)])
    thing, colour = draw.choice(COLOURED)
    if kind == "colour_of":
        return Talk([NATURE.said(draw, kind, thing, c=capital(thing), r=colour)])
    guess = colour if draw.chance(0.5) else draw.choice(COLOURS)
    yes = "Yes" if guess == colour else "No"
    return Talk([NATURE.said(draw, kind, thing, guess, yes=yes, r=colour)])


def opposites(draw: SeededDraw) -> Talk:
    first, other = draw.choice(OPPOSITES)
    if draw.chance(0.4) and other not in FIRSTS and SECONDS.count(other) == 1:
        first, other = other, first
    question = capital(WORDS.ask(draw, "opposite", first))
    right = tuple(b if a == first else a for a, b in OPPOSITES if first in (a, b))
    answer = f"The opposite of {first} is {other}."
    return Talk([Exchange(question, answer, Expect(any_of=right), short=other)])


def lists(draw: SeededDraw) -> Talk:
    group, count = draw.choice(list(GROUPS)), draw.choice(list(COUNTS))
    items = draw.sample(GROUPS[group], COUNTS[count])
    style = draw.choice(("lists", "lists", "numbered", "bullets", "one_of"))
    named, any_of = [capital(item) for item in items], tuple(GROUPS[group])
    if style == "one_of":
        single = f"{group[:-3]}y" if group.endswith("ies") else group[:-1]
        question = WORDS.ask(draw, style, g=group, s=single)
        return Talk([Exchange(question, f"{named[0]}.", Expect(any_of=any_of))])
    shown = {"numbered": numbered(named), "bullets": bullets(named)}
    answer = shown.get(style, f"{capital(joined(items))}.")
    last = (f"{len(items)}.",) if style == "numbered" else ()
    expect = Expect(says=last, any_of=any_of, least=len(items))
    return Talk([Exchange(WORDS.ask(draw, style, n=count, g=group), answer, expect)])
