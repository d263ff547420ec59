"""Patterns of phrasings, and small grammar."""

import re
from functools import lru_cache
from itertools import product

CHOICE = re.compile(r"\[([^\]]*)\]")


@lru_cache(maxsize=4096)
def expand(pattern: str) -> tuple[str, ...]:
    """All texts of a pattern: `[a|b|]` stands for one of its parts, which may be empty."""
    parts = CHOICE.split(pattern)
    assert not any(mark in part for part in parts for mark in "[]"), pattern
    options = [part.split("|") if at % 2 else [part] for at, part in enumerate(parts)]
    return tuple(" ".join("".join(chosen).split()) for chosen in product(*options))


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def stopped(text: str) -> str:
    """Makes a whole sentence of a text, so that another may follow."""
    return text if text[-1] in ".?!" else f"{text}."


def article(noun: str) -> str:
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"


def plural(noun: str) -> str:
    if noun.endswith("news"):
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"


def joined(items: list[str], last: str = "and") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def bullets(items: list[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def numbered(items: list[str]) -> str:
    return "\n".join(f"{at}. {item}" for at, item in enumerate(items, 1))
