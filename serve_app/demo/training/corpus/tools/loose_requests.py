"""Tools made of any words, asked for with some of them in any sentence.

Nothing but common words says which tool is meant: a model that has seen enough of them looks for
these instead of forms of sentences that it knows.
"""

from serve_app.demo.training.corpus.names import THINGS, code, name, town, word
from serve_app.demo.training.corpus.phrases import listed, patterns
from serve_app.demo.training.corpus.split import SeededDraw, is_held
from serve_app.demo.training.corpus.subjects.memory import JOBS
from serve_app.demo.training.corpus.subjects.numbers import ITEMS
from serve_app.demo.training.corpus.tools.kinds import ToolKind
from serve_app.demo.training.corpus.tools.nouns import (
    ATTRIBUTES,
    BOOKED,
    MADE,
    SEARCHED,
    SET,
    VERBS,
)
from serve_app.demo.training.corpus.tools.values import (
    ValueSlot,
    clock,
    company,
    day,
    item,
    number,
    phrase,
    room,
    title,
)
from serve_app.demo.training.corpus.tools.words import PLAIN_NOUNS, PLAIN_VERBS

DEEDS = [
    *VERBS,
    *PLAIN_VERBS,
    *listed("""
find, get, show, check, send, plan, build, burn, buy, call, carry, catch, choose, collect, deliver,
compare, draw, explain, guess, hide, invite, join, keep, kick, learn, lend, measure, meet, mix,
pick, open, plant, print, publish, read, remove, rent, report, ring, sell, serve, share, sing,
steer, teach, take, throw, trade, train, visit, warn, watch, write
"""),
]
# Those that belong to the evaluation's side stay there.
OURS = [
    each
    for each in (*PLAIN_NOUNS, *ATTRIBUTES, *BOOKED, *MADE, *SEARCHED, *SET, *THINGS, *ITEMS, *JOBS)
    if " " not in each and not is_held(each)
]
NOUNS = sorted(set(OURS))
VERBS_OF_ALL = sorted({each for each in DEEDS if not is_held(each)})
CALLED = patterns("{v}_{x}\n{x}_{v}\n{v}_{x}_{y}\n{x}_{y}\n{v}_{y}_{x}")
ABOUT = patterns("""
[{v}|To {v}|It can {v}|Let us {v}] [a|the|some] {x} [of|for|with|at|in|from|on] [a|the] {y}[|.]
[{x}|The {x}] [of|for|with|at|in|from|on] [a|the] {y}[|.|, to {v}.]
[What|All that] [there is|is known] [about|of] [the|a] {x} [of|for|with|from] [the|a] {y}[|.]
""")
# with one value, and then with one more or two
ASKS = patterns("""
[I want to|I have to|I must|We want to|Help me to|Let us|Please] {v} [the|a|my] {x} {of} {a}[|.]
[How|Why|When|Where] [does|should|did] [the|a] {x} {v} {of} {a}?
[Is|Was] there [a|any] {x} [|or {y} ]{of} {a}?
[Who|What] [has|knows|makes] [the|a] {x} {of} {a}?
[My|Our|The] {x} is {a}[, {v} it|: {v}, please| now, so {v}|. Can you {v} it][|?|.]
[{a}|It is {a}] [that I want to {v}|that needs a {x}|that the {x} is for|whose {x} I want][|.]
[The|A|My] {y} [wants|needs|has] [the|a] {x} {of} {a}[|.]
[{v}|Quickly {v}] {a}[, it is a {x}|, it is for the {y}| and the {x}][|.|, please.]
[Give|Lend|Bring|Show] [me|us] [the|a|any] {x} {of} {a}[|.|, please.]
[{x} and {y}|The {x}, the {y}]: {a}[|, please][.|?]
[What|How much|How many] {x} [is|are] [there |]{of} {a}?
[Do|Did|Will] [we|you|they] {v} {a}?
[{v}|Please {v}|Now {v}|{v} the {x}] {a}[|.|, please.]
[Somebody|A friend|My sister|The {y}] [asked|told me] to {v} [|the {x} of ]{a}[|.]
[Can|Could|Will|Would] you {v} [the {x} |]{of} {a} [for me|for us|today|again]?
""")
MORE = patterns("""
{q} [with|for|and|by|to|from|on] [the|a] {f} {b}[|.]
{q} [The|Its|Our|My] {f} is {b}[|.]
{q} [Take|Use|Make it|With|For] {f} {b}[|.|, please.]
{f} {b}[:|,] {q}
""")
LAST = patterns("""
[And|Then] {c} as [the |]{g}[|.|, please.]
[The|Its|Our|My] {g} [is|should be|shall be] {c}[|.]
With {c} [for|as] the {g}[|.]
""")
LETTERS = "abc"
OF = ("of", "for", "with", "in", "from", "at", "on", "to", "by")
MAKERS = (
    (name, "string"), (town, "string"), (code, "string"), (item, "string"), (company, "string"),
    (title, "string"), (room, "string"), (phrase, "string"), (day, "string"), (clock, "string"),
    (number(2, 900), "integer"), (number(2, 20), "integer"), (number(2, 90), "number"),
)  # fmt: skip


def noun(draw: SeededDraw) -> str:
    return word(draw) if draw.chance(0.15) else draw.choice(NOUNS)


def verb(draw: SeededDraw) -> str:
    return word(draw) if draw.chance(0.1) else draw.choice(VERBS_OF_ALL)


def loose(draw: SeededDraw) -> ToolKind:
    """A kind for one tool; its phrasings are of the side that draws."""
    fill = {"v": verb(draw), "x": noun(draw), "y": noun(draw)}
    fields = [noun(draw) for _ in range(draw.choice((1, 1, 2, 2, 3)))]
    if len({*fill.values(), *fields}) < len(fill) + len(fields):
        return loose(draw)
    called, about = draw.ask(CALLED).format(**fill), draw.ask(ABOUT).format(**fill)
    telling = [part for part in fill.values() if part in called or part in about]
    makers = [draw.choice(MAKERS) for _ in fields]
    slots = [ValueSlot((f,), make, kind) for f, (make, kind) in zip(fields, makers, strict=True)]
    order = draw.sample(range(len(fields)), len(fields))  # of the definition
    letters = [f"{{{LETTERS[order.index(at)]}}}" for at in range(len(fields))]
    return ToolKind(
        nouns=(" ".join(fill.values()),),
        names=(called,),
        about=(about,),
        asks=tuple(_asked(draw, fill, telling, fields, letters) for _ in range(4)),
        slots=tuple(slots[at] for at in order),
        drawn=True,
    )


def _asked(
    draw: SeededDraw, fill: dict[str, str], telling: list[str], fields: list[str], values: list[str]
) -> str:
    """A sentence with a word of the definition; its values are letters in braces."""
    while True:
        text = draw.ask(ASKS).format(**fill, a=values[0], of=draw.choice(OF))
        if any(part in text for part in telling):
            break
    if len(fields) > 1:
        more = draw.ask(MORE)
        first = _ended(text) if more.startswith("{f}") or more[4].isupper() else text.rstrip(".?")
        text = more.format(q=first, f=fields[1], b=values[1])
    if len(fields) > 2:
        text = f"{_ended(text)} {draw.ask(LAST).format(g=fields[2], c=values[2])}"
    return text


def _ended(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
