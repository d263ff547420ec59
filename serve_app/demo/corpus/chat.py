"""What every skill shares: exchanges, weighted phrasing and the roughness of typed questions."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Turn:
    role: Role
    text: str


@dataclass(frozen=True)
class Exchange:
    """One question and its answer.

    `short` is the answer to use when one word is asked for; `exact` keeps the question as written.
    """

    question: str
    answer: str
    short: str | None = None
    exact: bool = False


Chat = list[Turn]
Skill = Callable[[Random], list[Exchange]]

LEADS = (
    "Please tell me: {}",
    "Hey, {}",
    "Hi! {}",
    "Hello, {}",
    "Tell me, {}",
    "Quick question: {}",
    "I have a question. {}",
    "Can you help me? {}",
    "Okay, {}",
    "And {}",
    "So, {}",
    "Do you know this? {}",
)
BRIEFLY = (
    "{} Answer in one word.",
    "{} One word only.",
    "In one word: {}",
    "{} Just the answer, please.",
    "{} Answer with one word.",
    "{} In one word, please.",
    "{} Only the answer.",
    "Answer in one word: {}",
)


def rows(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("|")] for row in rows(text)]


def listed(text: str) -> list[str]:
    return [item.strip() for item in " ".join(rows(text)).split(",") if item.strip()]


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"


def joined(items: list[str], last: str = "and") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def asked(rng: Random, exchange: Exchange) -> Exchange:
    """The exchange as a person would type it: led in, asked for briefly, or written carelessly."""
    if exchange.exact:
        return exchange
    question, answer = exchange.question, exchange.answer
    if exchange.short is not None and rng.random() < 0.15:
        question, answer = rng.choice(BRIEFLY).format(question), capital(exchange.short)
    elif rng.random() < 0.12:
        question = rng.choice(LEADS).format(question)
    return Exchange(rough(rng, question), answer)


def rough(rng: Random, text: str) -> str:
    chance = rng.random()
    if chance < 0.50:
        return text
    if chance < 0.72:
        return text.lower().rstrip("?.!")
    if chance < 0.84:
        return text.rstrip("?.!")
    if chance < 0.91:
        return text.lower()
    if chance < 0.94:
        return f"{text.rstrip('?.!')}{rng.choice(('??', '!', ' ?', '...', ' please', ', please?'))}"
    return text.upper() if chance < 0.965 else _typo(rng, text)


def _typo(rng: Random, text: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + 1 :] if text[at].isalpha() and len(text) > 8 else text
