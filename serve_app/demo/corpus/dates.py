"""Days, months and seasons: order, number and length."""

from collections.abc import Callable
from random import Random

from serve_app.demo.corpus.chat import Exchange, joined, table

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
SEASONS = ["spring", "summer", "autumn", "winter"]
LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
ORDER = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
]
FIXED = table("""
How many days are in a week?; How many days does a week have?; How long is a week?; \
How many days are there in a week?; Number of days in a week? | A week has seven days. | Seven
How many months are in a year?; How many months does a year have?; How many months are there in \
a year? \
| A year has twelve months. | Twelve
How many days are in a year?; How many days does a year have?; How many days are there in a year?; \
How long is a year? | A year has 365 days, and a leap year has 366. | 365
How many hours are in a day?; How many hours does a day have?; How many hours are there in a day?; \
How long is a day? | A day has 24 hours. | 24
How many minutes are in an hour?; How many minutes does an hour have?; How long is an hour? \
| An hour has 60 minutes. | 60
How many seconds are in a minute?; How many seconds does a minute have?; How long is a minute? \
| A minute has 60 seconds. | 60
How many weeks are in a year?; How many weeks does a year have?; How many weeks are there in a \
year? \
| A year has 52 weeks. | 52
How many years are in a century?; How long is a century?; What is a century? \
| A century is 100 years. | 100
How many years are in a decade?; How long is a decade?; What is a decade? \
| A decade is ten years. | Ten
What are the days of the week?; Name the days of the week.; List the days of the week.; \
Tell me the days of the week.; Which days are in a week? | The days of the week are Monday, \
Tuesday, \
Wednesday, Thursday, Friday, Saturday and Sunday. |
What are the months of the year?; Name the months.; List the months of the year.; \
List all months.; Tell me the months of the year. | The months are January, February, March, \
April, May, \
June, July, August, September, October, November and December. |
What are the four seasons?; Name the seasons.; What are the seasons?; List the four seasons.; \
How many seasons are there? | The four seasons are spring, summer, autumn and winter. |
Which days are the weekend?; What days are on the weekend?; What is the weekend?; Name the \
weekend days. \
| The weekend is Saturday and Sunday. |
When is Christmas?; What day is Christmas?; What month is Christmas in? \
| Christmas is in December, on the 25th. | December
What is the shortest month?; Which month is the shortest?; Which month has the fewest days? \
| February is the shortest month. | February
""")


def _fixed(rng: Random) -> Exchange:
    asks, answer, short = rng.choice(FIXED)
    return Exchange(rng.choice(asks.split(";")).strip(), answer, short or None)


def _next(rng: Random) -> Exchange:
    kind, ring = rng.choice((("day", DAYS), ("day", DAYS), ("month", MONTHS), ("season", SEASONS)))
    at, after = rng.randrange(len(ring)), rng.random() < 0.6
    word, result = ("after", ring[(at + 1) % len(ring)]) if after else ("before", ring[at - 1])
    ask = rng.choice(("What {0} comes {1} {2}?", "Which {0} is {1} {2}?", "What comes {1} {2}?"))
    verb = "follows" if after else "comes before"
    answer = f"{result[0].upper()}{result[1:]} {verb} {ring[at]}."
    return Exchange(ask.format(kind, word, ring[at]), answer, result)


def _today(rng: Random) -> Exchange:
    at = rng.randrange(7)
    shift, word = rng.choice(((1, "tomorrow"), (-1, "yesterday")))
    then, verb = DAYS[(at + shift) % 7], "is" if shift == 1 else "was"
    question = f"Today is {DAYS[at]}. What day {verb} {word}?"
    return Exchange(question, f"If today is {DAYS[at]}, {word} {verb} {then}.", then)


def _length(rng: Random) -> Exchange:
    at = rng.randrange(12)
    month = MONTHS[at]
    ask = rng.choice(("How many days does {} have?", "How many days are in {}?", "How long is {}?"))
    leap = ", and 29 in a leap year" if at == 1 else ""
    return Exchange(ask.format(month), f"{month} has {LENGTHS[at]} days{leap}.", str(LENGTHS[at]))


def _ordinal(rng: Random) -> Exchange:
    kind, ring = rng.choice((("day of the week", DAYS), ("month of the year", MONTHS)))
    at = rng.randrange(len(ring))
    nth = ORDER[at]
    ask = rng.choice(("What is the {} {}?", "Which is the {} {}?", "Name the {} {}."))
    return Exchange(ask.format(nth, kind), f"The {nth} {kind} is {ring[at]}.", ring[at])


def _season(rng: Random) -> Exchange:
    at = rng.randrange(4)
    parts = [MONTHS[(2 + 3 * at + i) % 12] for i in range(3)]
    question = rng.choice(("Which months are in {}?", "What are the {} months?", "When is {}?"))
    answer = f"In the north, {SEASONS[at]} is {joined(parts)}."
    return Exchange(question.format(SEASONS[at]), answer)


KINDS: tuple[Callable[[Random], Exchange], ...] = (
    _fixed,
    _fixed,
    _next,
    _next,
    _today,
    _length,
    _ordinal,
    _season,
)


def dates(rng: Random) -> list[Exchange]:
    return [rng.choice(KINDS)(rng)]
