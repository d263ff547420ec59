"""Which tool is meant: short definitions, and many requests that say a word of one of them.

Nothing else has to be found out, so that a text of one length asks for more than twice as many
choices as other conversations with tools.
"""

from dataclasses import dataclass

from serve_app.demo.training.corpus.chat import Exchange, SampleCall, SampleTool, Talk
from serve_app.demo.training.corpus.phrases import capital, patterns
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.tools.loose_requests import noun, verb

CALLED = patterns("{v}_{x}\n{x}_{v}\n{x}\n{x}_{y}\n{v}_{x}_{y}\n{y}_{v}")
ABOUT = patterns("""
[{v}|Let us {v}|To {v}] [a|the|some|] {x} [of|for|with|at|in|from] [a|the] {y}[|.]
[{x}|The {x}|All] [of|for|with|at|in|from|about] [a|the|] {y}[|.|, to {v} it]
[What|Who|Where] to {v}[|: {x}|: {y} or {x}|, with the {x}][|.]
{v}, {x}, {y}[|.]
""")
ASKS = patterns("""
[I want to|I must|Help me to|Let us|Please|Can you|Will you|Now|] {v}[| it| that| this][|.|?]
[The|A|My|Your|Give me the|What about the|I need a|Where is the|Bring the|] {x}[|.|?|, please]
[How|Why|When|Where] [does|should] [the|a] {x} {v}?
[{v}|Please {v}] [the|a|my|this] {x}[|.| now| again|, please.]
[The|My|A] {x} [is|was] [old|new|here|gone|ready|broken|blue|ours|late|a {y}|no {y}][|.]
[{x} and {y}|{y} of {x}|The {x}, the {y}|No {y} without {x}][|.|?]
""")
BETWEEN = (". ", "; ", " and ", ", then ", ". Then ")
DONE = ("ok", "done", "true", '{"ok": true}')


@dataclass(frozen=True)
class ChoiceFamily:
    tool: SampleTool
    words: dict[str, str]  # the letter of each in a pattern
    telling: frozenset[str]  # letters of those that the definition says

    def asked(self, draw: SeededDraw) -> str:
        while True:
            text = draw.ask(ASKS)
            if any(f"{{{letter}}}" in text for letter in self.telling):
                return text.format(**self.words)


def choosing(draw: SeededDraw) -> Talk:
    known: list[ChoiceFamily] = []
    count = draw.choice((2, 3, 3, 4, 5))
    while len(known) < count:
        new = _choice(draw)
        if all(_differ(new, each) for each in known):
            known.append(new)
    exchanges = [_exchange(draw, known) for _ in range(draw.randint(4, 9))]
    return Talk(exchanges, tools=tuple(each.tool for each in known))


def _differ(one: ChoiceFamily, other: ChoiceFamily) -> bool:
    return not set(one.words.values()) & set(other.words.values())


def _choice(draw: SeededDraw) -> ChoiceFamily:
    words = {"v": verb(draw), "x": noun(draw), "y": noun(draw)}
    if len(set(words.values())) < len(words):
        return _choice(draw)
    called, about = draw.ask(CALLED).format(**words), draw.ask(ABOUT).format(**words)
    telling = {letter for letter, word in words.items() if word in called or word in about}
    shown = capital(about) if draw.chance(0.5) else about
    return ChoiceFamily(SampleTool(called, shown), words, frozenset(telling))


def _exchange(draw: SeededDraw, known: list[ChoiceFamily]) -> Exchange:
    count = draw.choices((1, 2, 3), (70, 20, 10))[0]
    chosen = draw.sample(known, min(count, len(known)))
    parts = [each.asked(draw) for each in chosen]
    question = draw.choice(BETWEEN).join([*(part.rstrip(".?") for part in parts[:-1]), parts[-1]])
    calls = tuple(SampleCall(each.tool.name, {}) for each in chosen)
    results = tuple(draw.choice(DONE) for _ in calls)
    question = capital(question) if draw.chance(0.7) else question
    return Exchange(question, "Done.", calls=calls, results=results)
