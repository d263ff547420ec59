"""Tools made of any words, asked for with some of them in any sentence.

Nothing but common words says which tool is meant: a model that has seen enough of them looks for
these instead of forms of sentences that it knows. Where there is nothing else to be found out, a
text of one length asks for more than twice as many choices as other conversations with tools.
"""

from dataclasses import dataclass

from serve_app.demo.training.corpus.chat import Exchange, SampleCall, SampleTool, Talk
from serve_app.demo.training.corpus.names import ITEMS, JOBS, THINGS, word
from serve_app.demo.training.corpus.split import SeededDraw, is_held
from serve_app.demo.training.corpus.texts import Texts, capital
from serve_app.demo.training.corpus.tools.kinds import NOUNS, ToolKind, ValueSlot, maker

LOOSE, CHOICE = Texts("loose_requests"), Texts("choice")
SORTS = ("plain_nouns", "attributes", "booked", "made", "searched", "set")
NAMED = [*(noun for sort in SORTS for noun in NOUNS.listed(sort)), *THINGS, *ITEMS, *JOBS]
DEEDS = [verb for sort in ("verbs", "plain_verbs", "deeds") for verb in NOUNS.listed(sort)]
# Those that belong to the evaluation's side stay there.
ALL_NOUNS = sorted({each for each in NAMED if " " not in each and not is_held(each)})
ALL_VERBS = sorted({each for each in DEEDS if not is_held(each)})
LETTERS = "abc"
OF = ("of", "for", "with", "in", "from", "at", "on", "to", "by")
BETWEEN = (". ", "; ", " and ", ", then ", ". Then ")
DONE = ("ok", "done", "true", '{"ok": true}')
MAKERS = (
    *((named, "string") for named in LOOSE.listed("strings")),
    *(("2-900", "integer"), ("2-20", "integer"), ("2-90", "number")),
)


@dataclass(frozen=True)
class Described:
    """The name and the description of a tool, made of some words."""

    words: dict[str, str]  # by the letter of each in a pattern
    called: str
    about: str

    @property
    def telling(self) -> list[str]:
        """The letters of the words that the definition says."""
        return [c for c, word in self.words.items() if word in self.called or word in self.about]


def _noun(draw: SeededDraw) -> str:
    return word(draw) if draw.chance(0.15) else draw.choice(ALL_NOUNS)


def _verb(draw: SeededDraw) -> str:
    return word(draw) if draw.chance(0.1) else draw.choice(ALL_VERBS)


def _words(draw: SeededDraw) -> dict[str, str]:
    return {"v": _verb(draw), "x": _noun(draw), "y": _noun(draw)}


def _described(draw: SeededDraw, texts: Texts, words: dict[str, str]) -> Described:
    called = texts.ask(draw, "called", **words)
    return Described(words, called, texts.ask(draw, "about", **words))


def loose(draw: SeededDraw) -> ToolKind:
    """A kind for one tool; its phrasings are of the side that draws."""
    words = _words(draw)
    fields = [_noun(draw) for _ in range(draw.choice((1, 1, 2, 2, 3)))]
    if len({*words.values(), *fields}) < len(words) + len(fields):
        return loose(draw)
    made = _described(draw, LOOSE, words)
    makers = [draw.choice(MAKERS) for _ in fields]
    slots = [ValueSlot((f,), maker(m), kind) for f, (m, kind) in zip(fields, makers, strict=True)]
    order = draw.sample(range(len(fields)), len(fields))  # of the definition
    letters = [f"{{{LETTERS[order.index(at)]}}}" for at in range(len(fields))]
    return ToolKind(
        nouns=(" ".join(words.values()),),
        names=(made.called,),
        about=(made.about,),
        asks=tuple(_asked_loosely(draw, made, fields, letters) for _ in range(4)),
        slots=tuple(slots[at] for at in order),
        drawn=True,
    )


def _asked_loosely(draw: SeededDraw, made: Described, fields: list[str], values: list[str]) -> str:
    """A sentence with a word of the definition; its values are letters in braces."""
    telling = [made.words[letter] for letter in made.telling]
    while True:
        text = LOOSE.ask(draw, "asks", **made.words, a=values[0], of=_of)
        if any(part in text for part in telling):
            break
    if len(fields) > 1:
        more = draw.ask(LOOSE.asks("more"))
        first = _ended(text) if more.startswith("{f}") or more[4].isupper() else text.rstrip(".?")
        text = more.format(q=first, f=fields[1], b=values[1])
    if len(fields) > 2:
        text = f"{_ended(text)} {LOOSE.ask(draw, 'last', g=fields[2], c=values[2])}"
    return text


def _of(draw: SeededDraw) -> str:
    return draw.choice(OF)


def _ended(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


@dataclass(frozen=True)
class ChoiceFamily:
    tool: SampleTool
    made: Described

    def asked(self, draw: SeededDraw) -> str:
        while True:
            text = draw.ask(CHOICE.asks("asks"))
            if any(f"{{{letter}}}" in text for letter in self.made.telling):
                return text.format(**self.made.words)


def choosing(draw: SeededDraw) -> Talk:
    known: list[ChoiceFamily] = []
    count = draw.choice((2, 3, 3, 4, 5))
    while len(known) < count:
        new = _choice(draw)
        words = set(new.made.words.values())
        if not any(words & set(each.made.words.values()) for each in known):
            known.append(new)
    exchanges = [_exchange(draw, known) for _ in range(draw.randint(4, 9))]
    return Talk(exchanges, tools=tuple(each.tool for each in known))


def _choice(draw: SeededDraw) -> ChoiceFamily:
    words = _words(draw)
    if len(set(words.values())) < len(words):
        return _choice(draw)
    made = _described(draw, CHOICE, words)
    about = capital(made.about) if draw.chance(0.5) else made.about
    return ChoiceFamily(SampleTool(made.called, about), made)


def _exchange(draw: SeededDraw, known: list[ChoiceFamily]) -> Exchange:
    count = draw.choices((1, 2, 3), (70, 20, 10))[0]
    chosen = draw.sample(known, min(count, len(known)))
    parts = [each.asked(draw) for each in chosen]
    question = draw.choice(BETWEEN).join([*(part.rstrip(".?") for part in parts[:-1]), parts[-1]])
    calls = tuple(SampleCall(each.tool.name, {}) for each in chosen)
    results = tuple(draw.choice(DONE) for _ in calls)
    question = capital(question) if draw.chance(0.7) else question
    return Exchange(question, "Done.", calls=calls, results=results)
