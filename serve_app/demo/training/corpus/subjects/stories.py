"""Short stories with named heroes, jokes and rhymes, composed of parts that fit together."""

from collections.abc import Sequence

from serve_app.demo.training.corpus.chat import Exchange, Expect, Talk
from serve_app.demo.training.corpus.names import name
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts, article

STORIES = Texts("stories")
HEROES, TRAITS, PLACES = map(STORIES.listed, ("heroes", "traits", "places"))
ENDINGS, MORALS, OPENINGS, CAME, TIMES = map(
    STORIES.lines, ("endings", "morals", "openings", "came", "times")
)
TROUBLES, JOKES = STORIES.table("troubles"), STORIES.table("jokes")
POEMS = ["\n".join(lines) for lines in STORIES.table("poems")]


def _scene(draw: SeededDraw, trouble: Sequence[str], a: str, b: str, helper: str) -> str:
    event, feeling, help_ = trouble
    first, came = draw.choice(TIMES), draw.choice(CAME).format(b=b, c=article(helper))
    stop = "" if help_.endswith('"') else "."
    return f"{first} {event.format(a=a)}. {a} {feeling}. {came} {b} {help_}{stop}"


def tale(draw: SeededDraw, hero: str, who: str, scenes: int = 1) -> str:
    friend, helper = name(draw), draw.choice(HEROES)
    while friend == who:
        friend = name(draw)
    opening, trait, place = draw.choice(OPENINGS), draw.choice(TRAITS), draw.choice(PLACES)
    start = f"{opening} {article(trait)} {hero} named {who}, who lived {place}."
    ending = draw.choice(ENDINGS).format(a=who, b=friend)
    troubles = draw.sample(TROUBLES, scenes)
    parts = [_scene(draw, trouble, who, friend, helper) for trouble in troubles]
    if scenes == 1:
        return f"{start} {parts[0]} {ending}"
    parts[0], parts[-1] = f"{start} {parts[0]}", f"{parts[-1]} {ending} {draw.choice(MORALS)}"
    return "\n\n".join(parts)


def stories(draw: SeededDraw) -> Talk:
    hero, who = draw.choice(HEROES), name(draw)
    if draw.chance(0.1):
        question = STORIES.ask(draw, "long")
        expect, told = Expect(any_of=tuple(HEROES)), tale(draw, hero, who, 3)
        return Talk([Exchange(question, told, expect)])
    told = tale(draw, hero, who)
    if draw.chance(0.2):
        return Talk([Exchange(STORIES.ask(draw, "story"), told, Expect(any_of=tuple(HEROES)))])
    if draw.chance(0.25):
        about, says = article(hero), (hero,)
        return Talk([Exchange(STORIES.ask(draw, "about", about), told, Expect(says=says))])
    forms = (f"{article(hero)} named {who}", f"{who} the {hero}", f"{article(hero)} called {who}")
    question = STORIES.ask(draw, "about", lambda draw: draw.choice(forms))
    return Talk([Exchange(question, told, Expect(says=(hero, who)))])


def fun(draw: SeededDraw) -> Talk:
    if draw.chance(0.65):
        answers = tuple(answer for _, answer in JOKES)
        joke = " ".join(draw.choice(JOKES))
        return Talk([Exchange(STORIES.ask(draw, "joke"), joke, Expect(any_of=answers))])
    ends = tuple(poem.splitlines()[-1] for poem in POEMS)
    question = STORIES.ask(draw, "poem")
    return Talk([Exchange(question, draw.choice(POEMS), Expect(any_of=ends))])
