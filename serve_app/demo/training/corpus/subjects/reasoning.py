"""Thoughts before the answer, where they are asked for: sums of two steps, and all else."""

from dataclasses import replace

from serve_app.demo.training.corpus.chat import Exchange, Expect, Skill, Talk
from serve_app.demo.training.corpus.names import name
from serve_app.demo.training.corpus.phrases import listed, patterns, stopped
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.arithmetic import Sum, drawn_sum, worked

TWO = patterns("""
[What is|What's|How much is|Calculate|Compute] {a} {s} {b} {t} {c}[?|.|]
[Work out|Solve|Tell me] {a} {s} {b} {t} {c}[|.|, please.]
[Can|Could] you [compute|calculate|work out] {a} {s} {b} {t} {c}?
""")
STORY = patterns("""
{n} [has|owns] {a} {x}, [gets|buys|finds] {b} more and then [loses|sells|gives away] {c}. \
How many {x} [are left|does {n} have]?
There are {a} {x}. {n} [brings|adds] {b} and [takes|removes] {c}. How many {x} are there[| now]?
""")
ASKED = patterns("""
[Think|Think first|Think step by step|Think before you answer|Reason first][:|.] {}
{} [Think|Think first|Think step by step|Think before you answer|Please think first][|.]
""")
THINGS = listed(
    "apples, books, coins, eggs, cards, stamps, shells, cups, keys, pears, beads, tickets"
)


def two_steps(draw: SeededDraw) -> Exchange:
    while True:
        first = drawn_sum(draw, "+-")
        second = Sum(first.result, draw.choice("+-"), draw.randint(1, 30))
        if 0 <= second.result <= 100 and min(first.a, first.b) > 0 and _is_ours(draw, second):
            break
    question = draw.ask(TWO).format(a=first.a, s=first.sign, b=first.b, t=second.sign, c=second.b)
    answer = f"The result is {second.result}."
    return _thought(question, first, second, answer)


def story(draw: SeededDraw) -> Exchange:
    while True:
        first = drawn_sum(draw, "+")
        second = Sum(first.result, "-", draw.randint(1, 30))
        if second.result > 1 and min(first.a, first.b) > 1 and _is_ours(draw, second):
            break
    thing = draw.choice(THINGS)
    fill = {"a": first.a, "b": first.b, "c": second.b, "x": thing, "n": name(draw)}
    answer = f"The answer is {second.result} {thing}."
    return _thought(draw.ask(STORY).format(**fill), first, second, answer)


def _is_ours(draw: SeededDraw, sum_: Sum) -> bool:
    return draw.held or not sum_.is_held


def _thought(question: str, first: Sum, second: Sum, answer: str) -> Exchange:
    thought = f"First: {worked(first)}\nThen: {worked(second)}"
    expect = Expect(says=(answer.rstrip("."),), thinks=True)
    return Exchange(question, answer, expect, thought=thought)


def reasoning(draw: SeededDraw) -> Talk:
    """Asks for thoughts by the template's switch or in words; else the steps are in the answer."""
    asked = draw.choice((two_steps, story))(draw)
    way = draw.random()
    if way < 0.6:
        return Talk([asked], thinking=True)
    if way < 0.8:
        return Talk([replace(asked, question=draw.ask(ASKED).format(stopped(asked.question)))])
    steps = asked.thought.replace("\n", " ")
    plain = replace(asked, thought="", answer=f"{steps} {asked.answer}")
    return Talk([replace(plain, expect=replace(asked.expect, thinks=False))])


def thoughtful(skills: list[Skill]) -> Skill:
    """The skill of thinking, when asked to, about what others ask."""

    def think(draw: SeededDraw) -> Talk:
        talk = draw.choice(skills)(draw)
        while not talk.is_plain or len(talk.exchanges) > 3:
            talk = draw.choice(skills)(draw)
        last = talk.exchanges[-1]
        thought = f'The user says: "{last.question}" I know what to answer.'
        thinking = draw.chance(0.7)
        question = last.question if thinking else draw.ask(ASKED).format(stopped(last.question))
        expect = replace(last.expect, thinks=True)
        changed = replace(last, question=question, thought=thought, expect=expect)
        return replace(talk, exchanges=[*talk.exchanges[:-1], changed], thinking=thinking)

    return think
