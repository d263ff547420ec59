"""Conversations that look back: names, ages, favourites and what was just said."""

from random import Random

from serve_app.demo.corpus.chat import Exchange, listed
from serve_app.demo.corpus.names import NAMES

COLOURS = listed("red, blue, green, yellow, white, black, orange, pink, purple, brown, grey")
TOWNS = listed(
    "Paris, London, Berlin, Rome, Madrid, Vienna, Oslo, Tokyo, Warsaw, Lisbon, Athens, Cairo"
)
PETS = listed("dog, cat, rabbit, horse, mouse, parrot, turtle, hamster")
FOODS = listed("pizza, soup, cheese, bread, rice, pasta, salad, cake, apples, chocolate")
NAME_TELLS = (
    "My name is {}.",
    "I am {}.",
    "I'm {}.",
    "Hello, I am {}.",
    "Hi, my name is {}.",
    "Hi! I'm {}.",
    "You can call me {}.",
    "Hello, my name is {}",
    "Please call me {}.",
    "Hey, I'm {}!",
    "My name is {}. Nice to meet you!",
    "Remember that my name is {}.",
)
NAME_ASKS = (
    "What is my name?",
    "What's my name?",
    "Do you know my name?",
    "Do you remember my name?",
    "Who am I?",
    "What am I called?",
    "Can you tell me my name?",
    "Say my name.",
    "Tell me my name.",
    "And what is my name?",
    "What was my name?",
)
GREETED = (
    "Hello {}! It is nice to meet you. How can I help you?",
    "Nice to meet you, {}! What can I do for you?",
)


def _said_name(rng: Random, name: str) -> Exchange:
    return Exchange(rng.choice(NAME_TELLS).format(name), rng.choice(GREETED).format(name))


def _asked_name(rng: Random, name: str) -> Exchange:
    return Exchange(rng.choice(NAME_ASKS), f"Your name is {name}.", name)


def names(rng: Random) -> list[Exchange]:
    name = rng.choice(NAMES)
    chance = rng.random()
    if chance < 0.2:
        return [_said_name(rng, name)]
    if chance < 0.4:
        question = rng.choice(NAME_TELLS).format(name) + " " + rng.choice(NAME_ASKS)
        return [Exchange(question, f"Your name is {name}.", name)]
    return [_said_name(rng, name), _asked_name(rng, name)]


def no_name(rng: Random) -> list[Exchange]:
    """What is asked before it was told: only good as the first exchange of a conversation."""
    if rng.random() < 0.6:
        answer = "I do not know your name yet. What is your name?"
        first = Exchange(rng.choice(NAME_ASKS[:-2]), answer)
        name = rng.choice(NAMES)
        return [first, _said_name(rng, name), _asked_name(rng, name)][: rng.randint(1, 3)]
    thing = rng.choice(("favourite colour", "age", "pet's name", "home town", "favourite food"))
    return [Exchange(f"What is my {thing}?", f"I do not know your {thing}. You have not told me.")]


def _favourite(rng: Random) -> list[Exchange]:
    kind, values = rng.choice((("colour", COLOURS), ("color", COLOURS), ("food", FOODS)))
    value = rng.choice(values)
    tell = rng.choice(("My favourite {0} is {1}.", "I like {1} best. It is my favourite {0}."))
    ask = rng.choice(
        ("What is my favourite {}?", "Which {} do I like best?", "Do you remember my favourite {}?")
    )
    return [
        Exchange(
            tell.format(kind, value),
            f"{value[0].upper()}{value[1:]} is a good choice! I will remember it.",
        ),
        Exchange(ask.format(kind), f"Your favourite {kind} is {value}.", value),
    ]


def _town(rng: Random) -> list[Exchange]:
    town = rng.choice(TOWNS)
    tell = rng.choice(("I live in {}.", "I am from {}.", "My home is in {}."))
    ask = rng.choice(("Where do I live?", "Where am I from?", "Which city do I live in?"))
    return [
        Exchange(tell.format(town), f"{town} is a nice place! What would you like to know?"),
        Exchange(ask, f"You live in {town}.", town),
    ]


def _pet(rng: Random) -> list[Exchange]:
    pet, name = rng.choice(PETS), rng.choice(NAMES)
    tell = rng.choice(("I have a {0} named {1}.", "My {0} is called {1}.", "My {0}'s name is {1}."))
    ask = rng.choice(
        ("What is my {}'s name?", "What is the name of my {}?", "How is my {} called?")
    )
    return [
        Exchange(tell.format(pet, name), f"{name} is a lovely name for a {pet}!"),
        Exchange(ask.format(pet), f"Your {pet} is called {name}.", name),
    ]


def _age(rng: Random) -> list[Exchange]:
    age = rng.randint(6, 80)
    tell = rng.choice(("I am {} years old.", "I'm {} years old.", "My age is {}."))
    return [
        Exchange(tell.format(age), f"{age} is a good age! What would you like to know?"),
        Exchange(
            rng.choice(("How old am I?", "What is my age?")), f"You are {age} years old.", str(age)
        ),
    ]


def remembered(rng: Random) -> list[Exchange]:
    return rng.choice((_favourite, _town, _pet, _age))(rng)
