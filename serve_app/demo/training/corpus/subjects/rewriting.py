"""Texts turned into another form: letter case, lists, JSON, replaced words; values; echoes."""

from collections.abc import Callable

from serve_app.demo.training.corpus.chat import Exchange, Talk, compact
from serve_app.demo.training.corpus.names import COLOURS, ITEMS, JOBS, code, name, town, word
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts, article, bullets, capital, joined, numbered

FORMS, ECHOES = Texts("rewriting"), Texts("words")
VERBS = FORMS.listed("verbs")
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
ITEM_MAKERS: tuple[Callable[[SeededDraw], str], ...] = (name, town, word, KEYS["item"])
ECHOED = (name, town, word, word, KEYS["item"], lambda draw: str(draw.randint(0, 9999)))


def rewriting(draw: SeededDraw) -> Talk:
    kinds = (_cased, _cased, _listed, _listed, _array, _object, _object, _replaced, _found, _found)
    return Talk([draw.choice(kinds)(draw)])


def _sentence(draw: SeededDraw) -> str:
    """A plain one of known words, and now and then of a name."""
    item, thing = draw.choice(ITEMS), f"{draw.choice(COLOURS)} {draw.choice(ITEMS)}"
    known = draw.choice((f"the {item}", article(item), f"my {item}"))
    who = known if draw.chance(0.5) else name(draw)
    what = draw.choice((article(thing), f"the {thing}", f"one {thing}"))
    return f"{capital(who)} {draw.choice(VERBS)} {what}."


def _cased(draw: SeededDraw) -> Exchange:
    text = draw.new(lambda _: _sentence(draw))
    if draw.chance(0.6):
        return FORMS.said(draw, "upper", text, r=text.upper())

    def shown(draw: SeededDraw) -> str:
        return text.upper() if draw.chance(0.5) else text

    return FORMS.said(draw, "lower", shown, r=text.lower())


def _items(draw: SeededDraw) -> list[str]:
    make = draw.choice(ITEM_MAKERS)
    return list(dict.fromkeys(make(draw) for _ in range(draw.randint(2, 5))))


def _listed(draw: SeededDraw) -> Exchange:
    items = _items(draw)
    shown = ", ".join(items) if draw.chance(0.6) else joined(items)
    if draw.chance(0.6):
        return FORMS.said(draw, "bullets", shown, r=bullets(items))
    return FORMS.said(draw, "numbers", shown, r=numbered(items))


def _array(draw: SeededDraw) -> Exchange:
    items = _items(draw)
    return FORMS.said(draw, "array", ", ".join(items), r=compact(items))


def _values(draw: SeededDraw) -> dict[str, str]:
    return {key: KEYS[key](draw) for key in draw.sample(list(KEYS), draw.randint(2, 3))}


def _object(draw: SeededDraw) -> Exchange:
    values = _values(draw)
    form = draw.choice(("{} {}", "{} is {}", "{}: {}", "{} = {}"))
    shown = ", ".join(form.format(*pair) for pair in values.items())
    typed = {key: int(value) if value.isdigit() else value for key, value in values.items()}
    return FORMS.said(draw, "object", shown, r=compact(typed))


def _replaced(draw: SeededDraw) -> Exchange:
    a, b = draw.sample(ITEMS, 2)
    new = word(draw) if draw.chance(0.4) else b
    text = f"{name(draw)} {draw.choice(VERBS)} the {a}."
    result = text.replace(f" {a}.", f" {new}.")
    return FORMS.said(draw, "replace", a=a, b=new, t=text, r=result)


def _found(draw: SeededDraw) -> Exchange:
    values = _values(draw)
    key = draw.choice(list(values))
    text = draw.choice((", ", "; ", " and ")).join(f"the {k} is {v}" for k, v in values.items())
    return FORMS.said(draw, "find", k=key, t=f"{capital(text)}.", v=values[key])


def _echoed(draw: SeededDraw) -> str:
    if draw.chance(0.15):
        return draw.one(ECHOES.listed("sayings"))
    count = draw.choice((1, 1, 2, 3, 4))
    return " ".join(draw.choice(ECHOED)(draw) for _ in range(count))


def echo(draw: SeededDraw) -> Talk:
    text = draw.new(lambda _: _echoed(draw))
    if draw.chance(0.3):
        text = draw.choice((capital(text), text.upper()))
    return Talk([ECHOES.said(draw, "echo", text)])
