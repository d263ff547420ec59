"""System prompts that are to be followed, and instructions on the form of an answer."""

from collections.abc import Callable
from dataclasses import replace

from serve_app.demo.training.corpus.chat import Exchange, Expect, Skill, Talk, said
from serve_app.demo.training.corpus.names import ITEMS, JOBS, code, name, town, word
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.knowledge import ANIMALS
from serve_app.demo.training.corpus.texts import Texts, article, capital, joined, stopped

PERSONAS, FORMS = Texts("personas"), Texts("following")
ROLES = [*JOBS, *PERSONAS.listed("roles")]
USUAL, MARKS = PERSONAS.listed("usual"), FORMS.listed("marks")
FACTS = {
    "opening time": lambda draw: f"{draw.randint(6, 11)}:{draw.choice(('00', '15', '30'))}",
    "closing time": lambda draw: f"{draw.randint(16, 23)}:{draw.choice(('00', '15', '30'))}",
    "password": code,
    "room": code,
    "manager": name,
    "city": town,
    "price": lambda draw: f"{draw.randint(2, 900)} euros",
    "phone number": lambda draw: "".join(draw.choice("0123456789") for _ in range(6)),
    "dish of the day": word,
    "contact": name,
    "street": lambda draw: f"{capital(word(draw))} Street",
    "user": name,
}
COUNTS = {"one": 1, "two": 2, "three": 3, "four": 4, "2": 2, "3": 3, "4": 4}
ANIMAL, PEOPLE = FORMS.lines("animal"), FORMS.lines("people")
PLACES = ("first", "second", "third", "last")


def usual(draw: SeededDraw) -> str:
    """A system prompt that asks for nothing in particular; mostly none."""
    return draw.choice(USUAL) if draw.chance(0.2) else ""


def personas(draw: SeededDraw) -> Talk:
    return draw.choice((_named, _named, _informed, _informed))(draw)


def _named(draw: SeededDraw) -> Talk:
    who, role = name(draw), article(draw.choice(ROLES))
    system = PERSONAS.ask(draw, "named", n=who, r=role, c=lambda draw: capital(word(draw)))
    asked = [PERSONAS.said(draw, section, n=who, r=role) for section in ("who", "job")]
    asked = [replace(each, exact=True) for each in asked]
    return Talk(asked[: draw.choice((1, 1, 2))] if draw.chance(0.8) else asked[1:], system)


def _informed(draw: SeededDraw) -> Talk:
    """Asks for what the system prompt says, and at times for what it does not say."""
    keys = draw.sample(list(FACTS), draw.randint(2, 5))
    known = {key: FACTS[key](draw) for key in keys[1:]}
    lines = [f"The {key} is {value}." for key, value in known.items()]
    role = draw.choice(("", "You are a helpful assistant.", f"You help at {capital(word(draw))}."))
    system = draw.choice((" ", "\n")).join([role, *lines] if role else lines)
    asked = draw.sample(list(known), draw.randint(1, len(known)))
    exchanges = [PERSONAS.said(draw, "fact_asks", key, v=known[key]) for key in asked]
    if draw.chance(0.25):
        question = PERSONAS.ask(draw, "fact_asks", keys[0])
        missing = said(question, f"I do not know the {keys[0]}.", "do not know")
        exchanges.insert(draw.randint(0, len(exchanges)), missing)
    return Talk(exchanges, system)


def styled(skills: list[Skill]) -> Skill:
    """The skill of answering what others ask in the form that the system prompt wants."""

    def style(draw: SeededDraw) -> Talk:
        system, shape = _style(draw)
        exchanges: list[Exchange] = []
        while len(exchanges) < draw.choice((1, 1, 2, 3)):
            asked = draw.choice(skills)(draw).exchanges[0]
            if asked.short and "\n" not in asked.answer:
                exchanges.append(shape(asked))
        return Talk(exchanges, system)

    return style


def _style(draw: SeededDraw) -> tuple[str, Callable[[Exchange], Exchange]]:
    """Whether a mark has a stop, a comma or no sign behind it, nobody says."""
    quote = draw.choice(('"', "'", ""))
    mark = capital(word(draw)) if draw.chance(0.6) else name(draw)
    kind = draw.choice(("last", "first", "called", "brief", "upper", "upper"))

    def shape(asked: Exchange) -> Exchange:
        if kind in ("last", "first", "called"):
            answer, expect = _marked(asked.answer, kind, mark)
        else:
            answer = capital(asked.short) if kind == "brief" else asked.answer.upper()
            expect = Expect(exactly=answer)
        return Exchange(asked.question, answer, expect)

    return PERSONAS.ask(draw, kind, w=mark, q=quote), shape


def _marked(answer: str, kind: str, mark: str) -> tuple[str, Expect]:
    """An answer with a mark at its end or before it, and what a right one has."""
    if kind == "last":
        return f"{answer} {mark}!", Expect(says=(f"{answer} {mark}",))
    sign = "!" if kind == "first" else ":"
    return f"{mark}{sign} {answer}", Expect(says=(mark, answer))


def briefly(draw: SeededDraw, asked: Exchange) -> Exchange:
    """The same, asked for in one word."""
    question = FORMS.ask(draw, "briefly", stopped(asked.question))
    answer = capital(asked.short)
    right = asked.expect.any_of or (asked.short,)
    return Exchange(question, answer, Expect(any_of=right, words=len(answer.split())))


def shaped(skills: list[Skill]) -> Skill:
    """The skill of answering what others ask in one word, or with a word before or behind."""

    def shape(draw: SeededDraw) -> Talk:
        while True:
            asked = draw.choice(skills)(draw).exchanges[0]
            if asked.short and "\n" not in asked.answer:
                break
        return Talk([briefly(draw, asked) if draw.chance(0.6) else _framed(draw, asked)])

    return shape


def _framed(draw: SeededDraw, asked: Exchange) -> Exchange:
    quote, last = draw.choice(('"', "")), draw.chance(0.6)
    mark = capital(word(draw)) if draw.chance(0.5) else draw.choice(MARKS)
    section = "finish" if last else "begin"
    question = FORMS.ask(draw, section, q=stopped(asked.question), q2=quote, w=mark)
    answer, expect = _marked(asked.answer, "last" if last else "first", mark)
    return replace(asked, question=question, answer=answer, expect=expect, short="")


def following(draw: SeededDraw) -> Talk:
    return Talk([draw.choice((_animal, _animal, _person, _times, _choose))(draw)])


def _animal(draw: SeededDraw) -> Exchange:
    row = draw.choice(ANIMALS)
    return _sentences(draw, [line.format(**row) for line in ANIMAL], row["a"], (row["name"],))


def _person(draw: SeededDraw) -> Exchange:
    who, job = name(draw), draw.choice(JOBS)
    fill = {"n": who, "j": job, "t": town(draw), "a": draw.choice(ANIMALS)["a"]}
    return _sentences(
        draw, [line.format(**fill) for line in PEOPLE], f"{who} the {job}", (who, job)
    )


def _sentences(draw: SeededDraw, known: list[str], about: str, says: tuple[str, ...]) -> Exchange:
    """Asks for so many sentences, of which the first is always the same."""
    count = draw.randint(1, 4)
    rest = sorted(draw.sample(known[1:], count - 1), key=known.index)
    words = draw.choice([text for text, number in COUNTS.items() if number == count])
    question = FORMS.ask(draw, "sentences", x=about, n=words, s="" if count == 1 else "s")
    answer = " ".join([known[0], *rest])
    return Exchange(capital(question), answer, Expect(says=says, sentences=count))


def _times(draw: SeededDraw) -> Exchange:
    text = word(draw) if draw.chance(0.5) else draw.choice(ITEMS)
    count = draw.choice([text for text, number in COUNTS.items() if number > 1])
    answer = " ".join([text] * COUNTS[count])
    return FORMS.said(draw, "times", q=lambda d: d.choice(('"', "")), w=text, n=count, r=answer)


def _choose(draw: SeededDraw) -> Exchange:
    items = [name(draw), town(draw), word(draw), draw.choice(ITEMS), str(draw.randint(1, 99))]
    items = draw.sample(list(dict.fromkeys(items)), draw.randint(3, 4))
    place = draw.choice(PLACES)
    found = items[-1] if place == "last" else items[PLACES.index(place)]
    shown = ", ".join(items) if draw.chance(0.6) else joined(items)
    return FORMS.said(draw, "choose", p=place, l=shown, r=found)
