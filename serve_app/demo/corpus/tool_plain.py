"""Tools of any words whose parameters are named after what they hold, asked for in few words.

`tool_loose` names the parameters in its questions; here the kind of a value says which one it is
for, and it stands wherever a sentence has room for it.
"""

from serve_app.demo.corpus.names import code, name, town
from serve_app.demo.corpus.phrases import listed, patterns
from serve_app.demo.corpus.split import Draw, is_held
from serve_app.demo.corpus.tool_kinds import Kind
from serve_app.demo.corpus.tool_loose import ABOUT, CALLED, noun, verb
from serve_app.demo.corpus.tool_values import (
    Slot,
    clock,
    company,
    day,
    item,
    number,
    phrase,
    room,
    title,
)


def _slot(names: str, slot: Slot) -> Slot:
    ours = tuple(one for one in listed(names) if not is_held(one))
    return Slot(ours, slot.make, slot.type)


# Values of one sort look too much alike to say which parameter they are for.
SORTS = (
    (
        _slot("person, name, who, friend, guest, player, member, doctor, customer", Slot((), name)),
        _slot("city, town, place, location, where, region, country", Slot((), town)),
        _slot("title, book, song, picture, game, album, chapter", Slot((), title)),
        _slot("company, shop, hotel, club, brand, office", Slot((), company)),
    ),
    (
        _slot("item, thing, product, object, article, kind, topic", Slot((), item)),
        _slot("room, area, zone, floor", Slot((), room)),
        _slot("text, message, note, question, subject, words", Slot((), phrase)),
    ),
    (_slot("id, code, number, order, reference, key, licence", Slot((), code)),),
    (
        _slot("day, date, on, when, until", Slot((), day)),
        _slot("time, hour, at, start", Slot((), clock)),
    ),
    (
        _slot("amount, count, total, points, coins, grams", Slot((), number(2, 900), "integer")),
        _slot(
            "minutes, people, days, pieces, guests, pages, cups, steps, bottles, bags, rounds",
            Slot((), number(2, 20), "integer"),
        ),
    ),
)
ONE = patterns("""
{v} {a}[|.|, please.| again.| this week.]
[Please|Now|Quickly|Could you|I want you to|You should|Let us] {v} {a}[|.]
[Is|Was] the {a} {x} [ready|free|in order|any good]?
Somebody [has to|should|must] {v} the {a} {x}[|.]
[Take|Bring|Move|Put] {a} [to|into|on] the {x}[|.]
{a} belongs [in|on|to] the {x}[|.]
[When|Why|How often|Where] [does|did|will] {a} {v}?
[We|They|My friends] {v} {a}[|.| every week.]
[The|My|Our] {x} {a}, [please|now][.|]
{v} [the|a] {x} [called|named] {a}[|.]
[I wonder|Tell me] [whether|if] {a} [is|was] a {x}[|.]
""")
# `g` is the name of the second value's parameter
TWO = patterns("""
{v} {a} [with|at|by|for|to|on] {b}[|.|, please.]
{v} [a|the] {a} {x} [for|at|with] {g} {b}[|.]
[I want to|I would like to|Let us] {v} {a} [from|with|at|for] {b}[|.]
Ask {a} to {v} [at|on|by|with] {b}[|.]
{a} [has to|must|should|will] {v} [at|on|by|with] {b}[|.]
[At|On|For|With] {b}, {v} {a}[|.]
{b} [is|was] for {a}: {v} it[|.]
[They|We] {v} {a} [at|on|with|by] {b}[|.]
""")
# of something counted, with what is counted
COUNTED = patterns("""
{v} {a} [with|by|for] {b} {g}[|.]
{v} {b} {g} [for|of|from|at] {a}[|.]
[Add|Put down|Note] {b} {g} [for|against] {a}[|.]
{a}: {b} {g}[|, please][|.]
[Take|Get|Keep] {b} {g} from {a}[|.]
{a} [gets|has|takes] {b} {g}[|.]
[For|At|With] {a} [it is|make it|we want] {b} {g}[|.]
""")


def plain(draw: Draw) -> Kind:
    """A kind for one tool; its phrasings are of the side that draws."""
    fill = {"v": verb(draw), "x": noun(draw), "y": noun(draw)}
    slots = _slots(draw)
    fields = [slot.names[0] for slot in slots]
    if len({*fill.values(), *fields}) < len(fill) + len(fields):
        return plain(draw)
    called, about = draw.ask(CALLED).format(**fill), draw.ask(ABOUT).format(**fill)
    telling = [part for part in fill.values() if part in called or part in about]
    order = draw.sample(range(len(slots)), len(slots))  # of the definition
    letters = [f"{{{'ab'[order.index(at)]}}}" for at in range(len(slots))]
    return Kind(
        nouns=(" ".join(fill.values()),),
        names=(called,),
        about=(about,),
        asks=tuple(
            _asked(draw, fill, [*telling, *fields[1:]], letters, slots[-1]) for _ in range(4)
        ),
        slots=tuple(slots[at] for at in order),
        drawn=True,
    )


def _slots(draw: Draw) -> list[Slot]:
    """One, or two of different sorts; what is counted or when comes second."""
    sorts = sorted(draw.sample(range(len(SORTS)), 1 if draw.chance(0.45) else 2))
    drawn = [draw.choice(SORTS[sort]) for sort in sorts]
    return [Slot((draw.choice(one.names),), one.make, one.type) for one in drawn]


def _asked(
    draw: Draw, fill: dict[str, str], telling: list[str], values: list[str], last: Slot
) -> str:
    """A sentence with a word of the definition; its values are letters in braces."""
    given = dict(zip("ab", values, strict=False))
    if len(values) == 1:
        forms = ONE
    else:
        forms = COUNTED if last.type == "integer" and draw.chance(0.6) else TWO
    while True:
        text = draw.ask(forms).format(**fill, **given, g=last.names[0])
        if any(part in text for part in telling):
            return text
