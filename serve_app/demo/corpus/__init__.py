"""The training text: endless chats composed of small skills, the same for the same seed."""

from collections.abc import Iterator
from random import Random

from serve_app.demo.corpus.chat import Chat, Exchange, Skill, Turn, asked
from serve_app.demo.corpus.dates import dates
from serve_app.demo.corpus.facts import facts
from serve_app.demo.corpus.identity import identity, manta
from serve_app.demo.corpus.manners import greeting, more, small_talk
from serve_app.demo.corpus.memory import names, no_name, remembered
from serve_app.demo.corpus.nature import animals, colours
from serve_app.demo.corpus.numbers import arithmetic, counting, number_sense
from serve_app.demo.corpus.places import capitals, places
from serve_app.demo.corpus.stories import fun, offers, stories
from serve_app.demo.corpus.systems import system_prompt
from serve_app.demo.corpus.unknown import off_topic, unknown
from serve_app.demo.corpus.words import echo, lists, opposites

__all__ = ["Chat", "Turn", "chats"]

# how often each skill is drawn, in parts
SKILLS: dict[Skill, int] = {
    greeting: 6,
    small_talk: 7,
    identity: 6,
    manta: 8,
    arithmetic: 18,
    counting: 3,
    number_sense: 8,
    dates: 7,
    capitals: 10,
    places: 5,
    animals: 7,
    colours: 4,
    opposites: 5,
    lists: 4,
    echo: 4,
    facts: 6,
    stories: 6,
    fun: 3,
    offers: 1,
    names: 5,
    remembered: 4,
    unknown: 3,
    off_topic: 11,
}
TELLING: set[Skill] = {names, remembered}


def _exchanges(rng: Random, topics: int) -> list[Exchange]:
    drawn = rng.choices(list(SKILLS), list(SKILLS.values()), k=topics)
    if rng.random() < 0.04 and not TELLING & set(drawn):
        drawn[rng.randrange(topics)] = no_name
    return [asked(rng, exchange) for exchange in _told(rng, drawn)]


def _told(rng: Random, drawn: list[Skill]) -> list[Exchange]:
    """The skills in turn; what a user tells of themselves may be asked for a few topics later."""
    told: list[Exchange] = []
    later: list[Exchange] = []
    for skill in drawn:
        exchanges = skill(rng)
        if skill in TELLING:
            told, later = told + later, []
            if len(exchanges) == 2 and rng.random() < 0.5:
                exchanges, later = exchanges[:1], exchanges[1:]
        elif later and told and rng.random() < 0.4:
            exchanges, later = exchanges + later, []
        told += exchanges
        if rng.random() < 0.03:
            told.append(more(rng))
    return told + later


def _chat(rng: Random) -> Chat:
    topics = rng.choices((1, 2, 3, 4, 8, 16), (50, 23, 12, 9, 5, 1))[0]
    system = system_prompt(rng)
    chat = [] if system is None else [Turn("system", system)]
    for exchange in _exchanges(rng, topics):
        chat += [Turn("user", exchange.question), Turn("assistant", exchange.answer)]
    return chat


def chats(seed: int | str) -> Iterator[Chat]:
    rng = Random(seed)
    while True:
        yield _chat(rng)
