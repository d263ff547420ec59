"""Conversations that look back: what the user told of themselves, and what they corrected."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from serve_app.demo.training.corpus.chat import Exchange, Talk, said
from serve_app.demo.training.corpus.names import code, name, town, word
from serve_app.demo.training.corpus.phrases import capital, listed, patterns, stopped
from serve_app.demo.training.corpus.split import SeededDraw

COLOURS = listed("red, blue, green, yellow, white, black, orange, pink, purple, brown, grey, gold")
FOODS = listed("""
pizza, soup, cheese, bread, rice, pasta, salad, cake, honey, chocolate, curry, stew, fish, tofu
""")
ANIMALS = listed("""
the dog, the cat, the rabbit, the horse, the owl, the fox, the bear, the turtle, the bee, the goat
""")
JOBS = listed("""
teacher, doctor, farmer, baker, pilot, nurse, cook, painter, driver, writer, lawyer, gardener,
plumber, dentist, singer, judge, tailor, miner, sailor, clerk
""")
PETS = listed("dog, cat, rabbit, horse, mouse, parrot, turtle, hamster, goat, pony")
KIN = listed("sister, brother, mother, father, friend, teacher, neighbour, boss, cousin, aunt")
Value = Callable[[SeededDraw], str]


@dataclass(frozen=True)
class Thing:
    """Something that can be told, asked for and answered. `{k}` is a kind, `{v}` the value."""

    tells: tuple[str, ...]
    asks: tuple[str, ...]
    answer: str
    unknown: str
    value: Value
    kinds: tuple[str, ...] = ("",)
    corrections: tuple[str, ...] = ()


def _word_of(items: list[str]) -> Value:
    """Mostly a word that is not in the list, so that it has to be read."""
    return lambda draw: draw.choice(items) if draw.chance(0.4) else word(draw)


FIXES = patterns("""
[Sorry|No|Wait|Oh|Actually|Oops], [I meant|it is|I mean|make that|it should be] {v}[|.|!]
[That was wrong|I was wrong|I made a mistake|Let me correct that][:|,] [it is|I mean] {v}[|.]
[Correction|Change that]: {v}[|.]
""")
NAME = Thing(
    patterns("""
    [|Hello, |Hi, |Hey, |Hi! ][my name is|I am|I'm|this is] {v}[|.|!]
    [You can|Please|You may] call me {v}[|.|!]
    [|Please ]remember that [my name is|I am called] {v}[|.]
    [People|My friends] call me {v}[|.]
    """),
    patterns("""
    [What is|What's|What was] my name[| again]?
    [Do you know|Do you remember|Can you recall|Can you tell me] my name[|, please]?
    [Who am I|How am I called|What am I called|Say my name|Tell me my name|And my name][?|, please?]
    [Do you know|Do you remember|Can you tell me] [who I am|what I am called|what my name is]?
    """),
    "Your name is {v}.",
    "I do not know your name yet. What is your name?",
    name,
    corrections=patterns("[Sorry|No|Wait|Actually|Oops], [my name is|I am|call me] {v}[|.|!]"),
)
FAVOURITE = Thing(
    patterns("""
    [My favourite|My favorite] {k} is {v}[|.|!]
    [I like {v} best|I love {v}|I like {v} most]. It is my favourite {k}[|.]
    [|Please ]remember that my favourite {k} is {v}[|.]
    {v} is my favourite {k}[|.|!]
    """),
    patterns("""
    [What is|What's|What was] my [favourite|favorite] {k}[| again]?
    [Which|What] {k} do I [like best|like most|love|prefer]?
    [Do you know|Do you remember|Can you tell me] my favourite {k}?
    [Tell me|Say|Name] my favourite {k}[|, please|.]
    """),
    "Your favourite {k} is {v}.",
    "I do not know your favourite {k}. You have not told me.",
    lambda draw: capital(word(draw)),
    tuple(listed("song, game, book, film, sport, place, band, drink, story, planet")),
)
COLOUR = replace(FAVOURITE, value=_word_of(COLOURS), kinds=("colour", "color"))
FOOD = replace(FAVOURITE, value=_word_of(FOODS), kinds=("food", "meal", "dish"))
ANIMAL = replace(FAVOURITE, value=_word_of(ANIMALS), kinds=("animal",))
HOME = Thing(
    patterns("""
    I [live|am living|have my home] in {v}[|.|!| now.]
    [My home is in|I moved to|My home town is] {v}[|.|!]
    """),
    patterns("""
    Where [do I live|is my home]?
    [Which|What] [city|town|place] do I live in?
    [Do you know|Do you remember|Can you tell me] where [I live|my home is]?
    """),
    "You live in {v}.",
    "I do not know where you live. You have not told me.",
    town,
)
ORIGIN = Thing(
    patterns("""
    I [am|come] from {v}[|.|!]
    [|Please ]remember that I [am|come] from {v}[|.]
    """),
    patterns("""
    Where [am I|do I come] from?
    [Which|What] [city|town|place] [am I|do I come] from?
    [Do you know|Do you remember|Can you tell me] where I [am|come] from?
    """),
    "You are from {v}.",
    "I do not know where you are from. You have not told me.",
    town,
)
JOB = Thing(
    patterns("""
    [I am|I'm|I work as] a {v}[|.|!| by trade.]
    My job is [being a|that of a] {v}[|.]
    """),
    patterns("""
    [What is|What's] my [job|work|profession|trade]?
    [What do I do|What do I work as|As what do I work|What do I do for a living]?
    [Do you know|Do you remember|Can you tell me] [my job|what I work as|what my job is]?
    """),
    "You are a {v}.",
    "I do not know your job. You have not told me.",
    _word_of(JOBS),
)
AGE = Thing(
    patterns("""
    [I am|I'm] {v} years old[|.|!]
    [My age is|I turned|I just became] {v}[|.|!]
    """),
    patterns("""
    [How old am I|What is my age|What's my age][?|, please?]
    [Do you know|Do you remember|Can you tell me] [my age|how old I am]?
    """),
    "You are {v} years old.",
    "I do not know your age. You have not told me.",
    lambda draw: str(draw.new(lambda rng: rng.randint(6, 99))),
)
PET = Thing(
    patterns("""
    [I have|We have] a {k} [named|called] {v}[|.|!]
    [My {k} is called|My {k}'s name is|The name of my {k} is] {v}[|.|!]
    """),
    patterns("""
    [What is|What's] [my {k}'s name|the name of my {k}|my {k} called]?
    [How is|What is] my {k} called?
    [Do you know|Do you remember|Can you tell me] [my {k}'s name|the name of my {k}]?
    """),
    "Your {k} is called {v}.",
    "I do not know the name of your {k}. You have not told me.",
    name,
    tuple(PETS),
)
RELATIVE = Thing(
    patterns("""
    [My {k} is called|My {k}'s name is|The name of my {k} is|I have a {k} called] {v}[|.|!]
    [{v} is my {k}|This is about my {k} {v}][|.]
    """),
    patterns("""
    [What is|What's] [my {k}'s name|the name of my {k}]?
    [Who is my {k}|What is my {k} called]?
    [Do you know|Do you remember|Can you tell me] [my {k}'s name|the name of my {k}|who my {k} is]?
    """),
    "Your {k} is called {v}.",
    "I do not know the name of your {k}. You have not told me.",
    name,
    tuple(KIN),
)
CODE = Thing(
    patterns("""
    [My|The|Our] {k} is {v}[|.|!]
    [|Please ][remember|note|keep in mind] [the|my] {k}[:| is|,] {v}[|.]
    """),
    patterns("""
    [What is|What's|What was] [my|the] {k}[| again]?
    [Do you remember|Can you recall|Can you tell me|Can you repeat] [my|the] {k}?
    [Tell me|Say|Give me|Repeat] [my|the] {k}[|, please|.]
    """),
    "The {k} is {v}.",
    "I do not know the {k}. You have not told me.",
    lambda draw: code(draw) if draw.chance(0.6) else word(draw),
    tuple(
        listed("code, password, room number, ticket number, secret word, order number, key word")
    ),
)
THINGS = (
    NAME,
    NAME,
    NAME,
    FAVOURITE,
    COLOUR,
    FOOD,
    ANIMAL,
    HOME,
    ORIGIN,
    JOB,
    AGE,
    PET,
    RELATIVE,
    CODE,
)
OKS = (
    "I will remember it.",
    "Thank you for telling me. I will remember it.",
    "Good to know! I will remember that.",
)


@dataclass(frozen=True)
class Told:
    thing: Thing
    kind: str
    value: str

    def tell(self, draw: SeededDraw) -> Exchange:
        question = capital(draw.ask(self.thing.tells).format(k=self.kind, v=self.value))
        return self._heard(draw, question)

    def fix(self, draw: SeededDraw) -> Exchange:
        asks = self.thing.corrections or FIXES
        return self._heard(draw, draw.ask(asks).format(k=self.kind, v=self.value))

    def _heard(self, draw: SeededDraw, question: str) -> Exchange:
        if self.thing is NAME:
            return said(question, f"Nice to meet you, {self.value}!", self.value, exact=True)
        answer = self.answer()
        answer = f"So {answer[0].lower()}{answer[1:]}"
        return said(question, f"{answer} {draw.choice(OKS)}", self.value, exact=True)

    def ask(self, draw: SeededDraw) -> Exchange:
        question = capital(draw.ask(self.thing.asks).format(k=self.kind))
        return said(question, self.answer(), self.value, short=self.value)

    def answer(self) -> str:
        return self.thing.answer.format(k=self.kind, v=self.value)

    def other(self, draw: SeededDraw) -> "Told":
        value = self.value
        while value == self.value:
            value = self.thing.value(draw)
        return Told(self.thing, self.kind, value)


def told(draw: SeededDraw, thing: Thing) -> Told:
    return Told(thing, draw.choice(thing.kinds), thing.value(draw))


def several(draw: SeededDraw, count: int) -> list[Told]:
    """Draws facts about different things; a color is a colour."""
    found: list[Told] = []
    while len(found) < count:
        one = told(draw, draw.choice(THINGS))
        kinds = [each.kind for each in found if each.thing is one.thing]
        if one.kind not in kinds and not (kinds and one.thing is COLOUR):
            found.append(one)
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
    question = missing.ask(draw).question
    answer = missing.thing.unknown.format(k=missing.kind)
    asked = said(question, answer, "do not know")
    return Talk([*(each.tell(draw) for each in known), asked])
