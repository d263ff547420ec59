"""Greetings and small talk, in other languages too, and polite answers to what it cannot know."""

from serve_app.demo.training.corpus.chat import Exchange, Expect, Talk, said
from serve_app.demo.training.corpus.names import name, word
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts

MANNERS, LANGUAGE, UNKNOWN = map(Texts, ("manners", "languages", "unknown"))
TALK = MANNERS.topics("talk")
ABOUT_ITSELF = Texts("identity").topics("about_itself")
DAYTIMES = MANNERS.listed("daytimes")
LANGUAGES = ("English", "German", "French", "Spanish", "Chinese")
PHRASES = LANGUAGE.table("phrases")
# language, what the user says, what is answered
SMALL_TALK = [
    (spoken, tuple(asks.split(";")), answer)
    for spoken, asks, answer in LANGUAGE.table("small_talk")
]
# in the order of the small talk in other languages
ENGLISH = [topic.asks for topic in (*TALK[:4], ABOUT_ITSELF[0])]
CANNOT, DECLINE = UNKNOWN.topics("cannot"), UNKNOWN.lines("decline")
MANY, TASKS = UNKNOWN.listed("many"), UNKNOWN.lines("tasks")
TOPICS = MANY + UNKNOWN.listed("topics")


def small_talk(draw: SeededDraw) -> Talk:
    if draw.chance(0.12):
        return Talk([MANNERS.said(draw, "daytime_asks", draw.choice(DAYTIMES))])
    if draw.chance(0.12):
        return Talk([MANNERS.said(draw, "personal", name(draw))])
    return Talk([draw.choice(TALK).exchange(draw)])


def languages(draw: SeededDraw) -> Talk:
    kinds = (_into, _into, _from, _spoken, _spoken, _ordered, _ordered, _introduced)
    return draw.choice(kinds)(draw)


def _into(draw: SeededDraw) -> Talk:
    row, at = draw.choice(PHRASES), draw.randint(1, 4)
    fill = {"w": row[0], "l": LANGUAGES[at], "r": row[at]}
    return Talk([LANGUAGE.said(draw, "into", q=lambda d: d.choice(('"', "'", "")), **fill)])


def _from(draw: SeededDraw) -> Talk:
    row, at = draw.choice(PHRASES), draw.randint(1, 4)
    while sum(other[at] == row[at] for other in PHRASES) > 1 or row[at] == row[0]:
        row, at = draw.choice(PHRASES), draw.randint(1, 4)
    fill = {"w": row[at], "l": LANGUAGES[at], "r": row[0]}
    return Talk([LANGUAGE.said(draw, "from", q=lambda d: d.choice(('"', "'", '"')), **fill)])


def _answered(question: str, answer: str) -> Exchange:
    return Exchange(question, answer, Expect(exactly=answer), exact=True)


def _spoken(draw: SeededDraw) -> Talk:
    _, asks, answer = draw.choice(SMALL_TALK)
    return Talk([_answered(draw.ask(asks), answer)])


def _ordered(draw: SeededDraw) -> Talk:
    """The system prompt wants a language, and the user writes English or that."""
    language = draw.choice(LANGUAGES[1:])
    ours = [(asks, answer) for spoken, asks, answer in SMALL_TALK if spoken == language]
    exchanges = []
    for at in draw.sample(range(len(ENGLISH)), draw.choice((1, 1, 2))):
        asks, answer = ours[at]
        exchanges.append(_answered(draw.ask(ENGLISH[at] if draw.chance(0.7) else asks), answer))
    return Talk(exchanges, LANGUAGE.ask(draw, "orders", l=language))


def _introduced(draw: SeededDraw) -> Talk:
    asks, answer = draw.choice(LANGUAGE.table("introduced"))
    who = name(draw)
    question = draw.ask(tuple(asks.split(";"))).format(who)
    return Talk([Exchange(question, answer.format(who), Expect(says=(who,)), exact=True)])


def unknown(draw: SeededDraw) -> Talk:
    if not draw.chance(0.3):
        return Talk([draw.choice(CANNOT).exchange(draw)])
    section, who = "named", f"{name(draw)} {name(draw)}"
    if draw.chance(0.5):
        section, who = "called", f"a {word(draw)}"
    question = UNKNOWN.ask(draw, section, who)
    return Talk([said(question, f"I am sorry, I do not know {who}.", "do not know")])


def off_topic(draw: SeededDraw) -> Talk:
    kind = draw.random()
    if kind < 0.75:
        topics = [draw.one(TOPICS)] if kind < 0.6 else draw.some(TOPICS, 2)
        verbs = ("are", "do") if topics[0] in MANY else ("is", "does")
        section = "off" if kind < 0.6 else "compare"
        question = UNKNOWN.ask(draw, section, *topics, be=verbs[0], do=verbs[1])
    else:
        question = UNKNOWN.ask(draw, "leads", lambda draw: draw.one(TASKS))
    return Talk([Exchange(question, draw.choice(DECLINE), Expect(says=("tiny demo model",)))])
