"""Texts turned into another form: letter case, lists, JSON, replaced words, found values."""

from collections.abc import Callable

from serve_app.demo.training.corpus.chat import Exchange, Talk, compact, one, said, verbatim
from serve_app.demo.training.corpus.names import code, name, town, word
from serve_app.demo.training.corpus.phrases import (
    article,
    bullets,
    capital,
    joined,
    listed,
    numbered,
    patterns,
)
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.memory import COLOURS, JOBS
from serve_app.demo.training.corpus.subjects.numbers import ITEMS

UPPER = patterns("""
[Write|Rewrite|Put|Say] [this|the text|it|the following] in [upper case|uppercase|capital \
letters|capitals|all caps]: {}
[Convert|Change] [this|the text|the following] to [upper case|uppercase|capital letters]: {}
[Upper case|Uppercase|In capital letters|All caps][:|, please:] {}
""")
LOWER = patterns("""
[Write|Rewrite|Put|Say] [this|the text|it|the following] in [lower case|lowercase|small letters]: {}
[Convert|Change] [this|the text|the following] to [lower case|lowercase|small letters]: {}
[Lower case|Lowercase|In small letters][:|, please:] {}
""")
BULLETS = patterns("""
[Write|Rewrite|Put] [this|these|the items|the following] as a [bullet list|bulleted \
list|list of bullet points]: {}
Turn [this|these|the items|the following] into a [bullet list|bulleted list]: {}
[Make|Write] a [bullet list|bulleted list] of [these|these items|the following]: {}
[Bullet list|Bullet points|As a bullet list][:|, please:] {}
""")
NUMBERS = patterns("""
[Write|Rewrite|Put] [this|these|the items|the following] as a numbered list: {}
Turn [this|these|the items|the following] into a numbered list: {}
[Make|Write] a numbered list of [this|these|these items|the following]: {}
[Numbered list|As a numbered list][:|, please:] {}
""")
ARRAY = patterns("""
[Write|Rewrite|Put] [this|these|the items|the following] as a JSON [list|array]: {}
Turn [this|these|the items|the following] into a JSON [list|array]: {}
[Make|Write] a JSON [list|array] of [this|these|these items|the following]: {}
[JSON array|JSON list|As a JSON array][:|, please:] {}
""")
OBJECT = patterns("""
[Write|Rewrite|Put] [this|the text|the following] as [JSON|a JSON object]: {}
Turn [this|the text|the following] into [JSON|a JSON object]: {}
[Make|Write] [JSON|a JSON object] [of|from] [this|the following]: {}
[JSON|JSON object|As JSON][:|, please:] {}
[Return|Give me] [a JSON object|JSON] with {}
""")
REPLACE = patterns("""
[Replace|Exchange|Swap] {a} [with|for] {b}[:| in:| in this text:] {t}
[Write|Say] [this|it] with {b} [instead of|in place of] {a}: {t}
""")
FIND = patterns("""
[What is|Find|Tell me|Give me|Extract|Read out] the {k} in [this|the|this text|the text|this \
message]: {t}
{t} [What is|What's|Tell me|Give me] the {k}[?|, please.|.]
""")
VERBS = listed("sees, likes, finds, draws, buys, sells, wants, has, keeps, paints, knows, needs")
KEYS: dict[str, Callable[[SeededDraw], str]] = {
    "name": name,
    "city": town,
    "job": lambda draw: draw.choice(JOBS),
    "age": lambda draw: str(draw.randint(6, 99)),
    "colour": lambda draw: draw.choice(COLOURS),
    "code": code,
    "item": lambda draw: draw.choice(ITEMS),
    "price": lambda draw: str(draw.randint(1, 999)),
    "country": town,
    "title": lambda draw: capital(word(draw)),
}


def rewriting(draw: SeededDraw) -> Talk:
    kinds = (_cased, _cased, _listed, _listed, _array, _object, _object, _replaced, _found, _found)
    return one(draw.choice(kinds)(draw))


def sentence(draw: SeededDraw) -> str:
    """A plain one of known words, and now and then of a name."""
    item, thing = draw.choice(ITEMS), f"{draw.choice(COLOURS)} {draw.choice(ITEMS)}"
    known = draw.choice((f"the {item}", article(item), f"my {item}"))
    who = known if draw.chance(0.5) else name(draw)
    what = draw.choice((article(thing), f"the {thing}", f"one {thing}"))
    return f"{capital(who)} {draw.choice(VERBS)} {what}."


def _cased(draw: SeededDraw) -> Exchange:
    text = draw.new(lambda _: sentence(draw))
    if draw.chance(0.6):
        return verbatim(draw.ask(UPPER).format(text), text.upper())
    return verbatim(
        draw.ask(LOWER).format(text.upper() if draw.chance(0.5) else text), text.lower()
    )


def _items(draw: SeededDraw) -> list[str]:
    makers: tuple[Callable[[SeededDraw], str], ...] = (name, town, word, lambda d: d.choice(ITEMS))
    make = draw.choice(makers)
    return list(dict.fromkeys(make(draw) for _ in range(draw.randint(2, 5))))


def _listed(draw: SeededDraw) -> Exchange:
    items = _items(draw)
    shown = ", ".join(items) if draw.chance(0.6) else joined(items)
    if draw.chance(0.6):
        return verbatim(draw.ask(BULLETS).format(shown), bullets(items))
    return verbatim(draw.ask(NUMBERS).format(shown), numbered(items))


def _array(draw: SeededDraw) -> Exchange:
    items = _items(draw)
    return verbatim(draw.ask(ARRAY).format(", ".join(items)), compact(items))


def _values(draw: SeededDraw) -> dict[str, str]:
    keys = draw.sample(list(KEYS), draw.randint(2, 3))
    return {key: KEYS[key](draw) for key in keys}


def _object(draw: SeededDraw) -> Exchange:
    values = _values(draw)
    form = draw.choice(("{} {}", "{} is {}", "{}: {}", "{} = {}"))
    shown = ", ".join(form.format(*pair) for pair in values.items())
    typed = {key: int(value) if value.isdigit() else value for key, value in values.items()}
    return verbatim(draw.ask(OBJECT).format(shown), compact(typed))


def _replaced(draw: SeededDraw) -> Exchange:
    a, b = draw.sample(ITEMS, 2)
    new = word(draw) if draw.chance(0.4) else b
    text = f"{name(draw)} {draw.choice(VERBS)} the {a}."
    question = draw.ask(REPLACE).format(a=a, b=new, t=text)
    return verbatim(question, text.replace(f" {a}.", f" {new}."))


def _found(draw: SeededDraw) -> Exchange:
    values = _values(draw)
    key = draw.choice(list(values))
    text = draw.choice((", ", "; ", " and ")).join(f"the {k} is {v}" for k, v in values.items())
    question = draw.ask(FIND).format(k=key, t=f"{capital(text)}.")
    return said(question, f"The {key} is {values[key]}.", f"is {values[key]}", short=values[key])
