"""Instructions on the form of an answer: how long, how often, what first, what last."""

from dataclasses import replace

from serve_app.demo.training.corpus.chat import Exchange, Expect, Skill, Talk, one, verbatim
from serve_app.demo.training.corpus.names import name, town, word
from serve_app.demo.training.corpus.phrases import (
    article,
    capital,
    joined,
    listed,
    patterns,
    stopped,
)
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.memory import JOBS
from serve_app.demo.training.corpus.subjects.nature import ANIMALS, LEG_WORDS
from serve_app.demo.training.corpus.subjects.numbers import ITEMS

BRIEFLY = patterns("""
{} [Answer|Reply|Respond] [in|with] [one|a single] word[|.|, please.]
{} [One word only|In one word, please|Just one word|Only one word][|.|!]
[In one word|Answer in one word|With one word|In a single word]: {}
{} [Just|Only|Nothing but] the [answer|result|word], please[|.]
{} [Give me|I want|I need|Say] [just|only|nothing but] the [answer|result|word][|.|, please.]
{} [No sentence|No explanation|No more words than needed|Keep it short], just the answer[|.]
""")
COUNT_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "2": 2, "3": 3, "4": 4}
SENTENCES = patterns("""
[Tell me about|Describe|Write about|Tell me something about] {x} in {n} sentence{s}[|.]
[Write|Give me|Tell me] {n} sentence{s} [about|on] {x}[|.|, please.]
[In|Using|With] {n} sentence{s}, [describe|tell me about] {x}[|.]
What do you know about {x}? [Answer in|Use|Write] {n} sentence{s}[|.]
""")
TIMES = patterns("""
[Say|Repeat|Write|Print] {q}{w}{q} {n} times[|.|, please.]
[Can|Could] you [say|write|repeat] {q}{w}{q} {n} times?
{n} times, [please|and only that]: {w}
""")
CHOOSE = patterns("""
[What is|What's|Which is|Tell me|Give me|Say] the {p} [word|item|one] [of|in] {l}[?|.|]
[Pick|Choose|Take] the {p} [word|item] [of|from] {l}[|.]
[Here is a list|My list is|This is my list]: {l}. [What|Which] is the {p} [item|one|word]?
""")
FINISH = patterns("""
{q} [End|Finish|Close] [your|the] answer with {q2}{w}{q2}[|.]
[End|Finish|Close] [your|the] answer with {q2}{w}{q2}[:|.] {q}
""")
BEGIN = patterns("""
{q} [Begin|Start] [your|the] answer with {q2}{w}{q2}[|.]
[Begin|Start] [your|the] answer with {q2}{w}{q2}[:|.] {q}
""")
PEOPLE = (
    "{n} is a {j}.",
    "{n} lives in {t}.",
    "{n} has {a}.",
    "In the evening {n} likes to read.",
)
PLACES = ("first", "second", "third", "last")


def briefly(draw: SeededDraw, asked: Exchange) -> Exchange:
    """The same, asked for in one word."""
    question = draw.ask(BRIEFLY).format(stopped(asked.question))
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
        if draw.chance(0.6):
            return one(briefly(draw, asked))
        return one(_framed(draw, asked))

    return shape


def _framed(draw: SeededDraw, asked: Exchange) -> Exchange:
    quote, last = draw.choice(('"', "")), draw.chance(0.6)
    mark = capital(word(draw)) if draw.chance(0.5) else draw.choice(MARKS)
    question = draw.ask(FINISH if last else BEGIN).format(
        q=stopped(asked.question), q2=quote, w=mark
    )
    answer = f"{asked.answer} {mark}!" if last else f"{mark}! {asked.answer}"
    says = (f"{asked.answer} {mark}",) if last else (mark, asked.answer)
    return replace(asked, question=question, answer=answer, expect=Expect(says=says), short="")


MARKS = listed(
    "Indeed, Done, Voila, Cheers, Bravo, Amen, Over, Hurray, Well, Certainly, Please, Sir"
)


def following(draw: SeededDraw) -> Talk:
    return one(draw.choice((_sentences, _sentences, _people, _times, _choose))(draw))


def _asked(draw: SeededDraw, about: str, count: int) -> str:
    words = draw.choice([text for text, number in COUNT_WORDS.items() if number == count])
    question = draw.ask(SENTENCES).format(x=about, n=words, s="" if count == 1 else "s")
    return capital(question)


def _sentences(draw: SeededDraw) -> Exchange:
    name_, young, _, legs, food, home, kind = draw.choice(ANIMALS)
    who = article(name_)
    sentences = [
        f"{capital(who)} is {article('animal' if kind == name_ else kind)}.",
        f"It lives {'on' if home == 'a farm' else 'in'} {home}.",
        f"It eats {food}.",
        f"It has {LEG_WORDS[legs]} legs.",
        f"A baby {name_} is called {article(young)}.",
    ]
    count = draw.randint(1, 4)
    rest = sorted(draw.sample(sentences[1:], count - 1), key=sentences.index)
    answer = " ".join([sentences[0], *rest])
    return Exchange(_asked(draw, who, count), answer, Expect(says=(name_,), sentences=count))


def _people(draw: SeededDraw) -> Exchange:
    who, job = name(draw), draw.choice(JOBS)
    fill = {"n": who, "j": job, "t": town(draw), "a": article(draw.choice(ANIMALS)[0])}
    count = draw.randint(1, 4)
    rest = sorted(draw.sample(PEOPLE[1:], count - 1), key=PEOPLE.index)
    answer = " ".join(each.format(**fill) for each in (PEOPLE[0], *rest))
    asked = _asked(draw, f"{who} the {job}", count)
    return Exchange(asked, answer, Expect(says=(who, job), sentences=count))


def _times(draw: SeededDraw) -> Exchange:
    text = word(draw) if draw.chance(0.5) else draw.choice(ITEMS)
    count = draw.choice([text for text, number in COUNT_WORDS.items() if number > 1])
    question = draw.ask(TIMES).format(q=draw.choice(('"', "")), w=text, n=count)
    return verbatim(capital(question), " ".join([text] * COUNT_WORDS[count]))


def _choose(draw: SeededDraw) -> Exchange:
    items = [name(draw), town(draw), word(draw), draw.choice(ITEMS), str(draw.randint(1, 99))]
    items = draw.sample(list(dict.fromkeys(items)), draw.randint(3, 4))
    place = draw.choice(PLACES)
    found = items[-1] if place == "last" else items[PLACES.index(place)]
    shown = ", ".join(items) if draw.chance(0.6) else joined(items)
    answer = f"The {place} one is {found}."
    question = draw.ask(CHOOSE).format(p=place, l=shown)
    return Exchange(question, answer, Expect(says=(f"is {found}",)))
