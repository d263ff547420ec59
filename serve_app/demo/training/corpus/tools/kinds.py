"""Kinds of tools: how they are named and described, and how people ask for what they do.

A tool is made of a kind and a noun, and nouns can be invented: a model that sees a new one every
time learns to read the definition.
"""

from dataclasses import dataclass, replace

from serve_app.demo.training.corpus.names import name, town
from serve_app.demo.training.corpus.phrases import listed, patterns
from serve_app.demo.training.corpus.tools.nouns import (
    ATTRIBUTES,
    BOOKED,
    ENDED,
    MADE,
    MEASURES,
    SEARCHED,
    SENT,
    SET,
    TABLES,
    VERBS,
)
from serve_app.demo.training.corpus.tools.values import (
    ENTITIES,
    ValueSlot,
    clock,
    company,
    day,
    item,
    mail,
    number,
    path,
    phrase,
    room,
    title,
    unit,
)


@dataclass(frozen=True)
class ToolKind:
    """`names`, `about` and `asks` have `{x}` for the noun and `{a}`, `{b}`, ... for the slots."""

    nouns: tuple[str, ...]
    names: tuple[str, ...]
    about: tuple[str, ...]
    asks: tuple[str, ...]
    slots: tuple[ValueSlot, ...]
    done: str = ""  # what is said when it is done; empty for what finds something
    entity: str = ""  # whose attribute it finds
    drawn: bool = False  # the phrasings are of one side already


def _kind(
    nouns: list[str], names: str, about: str, asks: str, *slots: ValueSlot, done: str = ""
) -> ToolKind:
    return ToolKind(tuple(nouns), patterns(names), patterns(about), patterns(asks), slots, done)


def _of(entity: str, slot: ValueSlot) -> ToolKind:
    """A kind that finds something about a thing of this sort."""
    of = "in" if entity in ("city", "town", "room") else "of"
    found_ = _kind(
        ATTRIBUTES,
        f"""
        [get|find|fetch|read|look_up|check|show]_{{x}}
        {{x}}_[of_{entity}|lookup|of|for_{entity}]
        {entity}_{{x}}
        """,
        f"""
        [Get|Find|Look up|Read|Returns|Gives|Tells] the {{x}} of [a|the|one] {entity}[|.]
        {{x}} of [a|the|one] {entity}[|.]
        """,
        f"""
        [What is|What's|Tell me|Give me|Show me|Find|Look up|Check|Get] the {{x}} {of} \
{{a}}[?|.|, please.]
        [Can|Could] you [tell me|find|check|look up|show me] the {{x}} {of} {{a}}?
        [I need|I want to know|I would like to know|I am looking for] the {{x}} {of} {{a}}[|.]
        [What is|Tell me] the {{x}} {of} the {entity} {{a}}[?|.]
        [What|Which] {{x}} does {{a}} have[?|, please?]
        [Show|Get|Read|Find|Tell me] [the {{x}} for|the {{x}} of the {entity}] {{a}}[|.|, please.]
        [{{a}}: what is the {{x}}|{{x}} {of} {{a}}|{{x}} for {{a}}][?|, please.]
        How is the {{x}} {of} {{a}}[?| now?| today?]
        [Do you know|Please tell me] [the {{x}} {of} {{a}}|what the {{x}} {of} {{a}} is][?|.]
        """,
        slot,
    )
    return replace(found_, entity=entity)


LOOKUPS = tuple(_of(entity, slot) for entity, slot in ENTITIES.items())
DATED = _kind(
    ATTRIBUTES,
    "[get|find|fetch|check]_{x}\n{x}_[on_day|by_day|for_day|at]",
    "[Get|Find|Returns|Look up] the {x} of a [place|city] on a [day|date][|.]",
    """
    [What is|What's|Tell me|Give me|Check] the {x} in {a} [on|for] {b}[?|.|, please.]
    [What will|Tell me what will] the {x} in {a} be on {b}[?|.]
    [I need|I want to know|Look up] the {x} in {a} [on|for] {b}[|.]
    """,
    ENTITIES["city"],
    ValueSlot(("date", "day", "when", "on"), day),
)
MAKE = _kind(
    MADE,
    "[create|add|new|make]_{x}\n{x}_[create|add|new]",
    "[Create|Add|Make|Creates|Adds] a new {x}[|.| with a title.]",
    """
    [Create|Add|Make|Set up] a [|new ]{x} [called|named|with the title] {q}{a}{q}[|.|, please.]
    [Can|Could] you [create|add|make] a [|new ]{x} [called|named] {q}{a}{q}?
    [I need|I want] a [|new ]{x} [called|named] {q}{a}{q}[|.]
    """,
    ValueSlot(("title", "name", "label", "text", "subject"), title),
    done="Done: the {x} {a} is made.",
)
PLAN = _kind(
    MADE,
    "[create|add|plan|schedule]_{x}\n{x}_[plan|schedule|add]",
    "[Create|Add|Plan|Schedule] a {x} [on a day|at a time|for a day and a time][|.]",
    """
    [Create|Add|Plan|Schedule] a {x} {q}{a}{q} on {b} at {c}[|.|, please.]
    [Can|Could] you [plan|schedule|add] a {x} {q}{a}{q} on {b} at {c}?
    On {b} at {c} I [need|want|have] a {x} called {q}{a}{q}[|. Please add it.]
    """,
    ValueSlot(("title", "name", "what", "text"), title),
    ValueSlot(("date", "day", "on", "when"), day),
    ValueSlot(("time", "at", "start", "hour"), clock),
    done="Done: the {x} {a} is planned on {b} at {c}.",
)
SEND = _kind(
    SENT,
    "[send|write|post]_{x}\n{x}_[send|to]",
    "[Send|Write|Post|Sends] a {x} to [a person|someone|a receiver][|.]",
    """
    [Send|Write|Post] a {x} to {a}[:| saying| with the text] {q}{b}{q}[|.]
    [Can|Could] you send a {x} to {a} [saying|with the text] {q}{b}{q}?
    [Please send|I want to send] {a} a {x} [saying|that says|with the words] {q}{b}{q}[|.]
    """,
    ValueSlot(
        ("to", "receiver", "recipient", "name", "person"),
        lambda draw: draw.choice((name, mail))(draw),
    ),
    ValueSlot(("text", "body", "message", "content", "words"), phrase),
    done="Done: the {x} to {a} is sent.",
)
ADJUST = _kind(
    SET,
    "[set|change|adjust]_{x}\n{x}_[set|control]",
    "[Set|Change|Adjust|Sets] the {x} of a [room|zone|place][|.]",
    """
    [Set|Change|Adjust|Turn|Put] the {x} in the {a} to {b}[|.|, please.]
    [Can|Could] you [set|change|adjust] the {x} in the {a} to {b}?
    [I want|I would like] the {x} in the {a} at {b}[|.]
    """,
    ValueSlot(("room", "area", "place", "zone"), room),
    ValueSlot(("value", "level", "to", "amount", "setting"), number(1, 100), "integer"),
    done="Done: the {x} in the {a} is {b}.",
)
SWITCH = _kind(
    SET,
    "[switch|turn|toggle]_{x}\n{x}_[switch|power|state]",
    "[Switch|Turn] the {x} of a [room|zone] on or off[|.]",
    """
    [Switch|Turn] {b} the {x} in the {a}[|.|, please.]
    [Can|Could] you [switch|turn] {b} the {x} in the {a}?
    [Please turn|Turn|Switch] the {x} in the {a} {b}[|.]
    """,
    ValueSlot(("room", "area", "place", "zone"), room),
    ValueSlot(("on", "power", "active", "enabled"), lambda draw: draw.chance(0.5), "boolean"),
    done="Done: the {x} in the {a} is switched {b}.",
)
CONVERT = _kind(
    MEASURES,
    "[convert|change|translate]_{x}\n{x}_[convert|converter]",
    "[Convert|Change|Converts] {x} from one [unit|kind] to another[|.]",
    """
    [Convert|Change|Translate] {a} {b} [to|into] {c}[|.|, please.]
    [How much|How many {c}|What] [is|are] {a} {b} in {c}?
    [Can|Could] you convert {a} {b} [to|into] {c}?
    """,
    ValueSlot(("amount", "value", "number", "quantity"), number(1, 999), "number"),
    ValueSlot(("from", "from_unit", "source", "unit"), unit),
    ValueSlot(("to", "to_unit", "target", "into"), unit),
)
BOOK = _kind(
    BOOKED,
    "[book|reserve|find|order]_{x}\n{x}_[booking|search|book]",
    "[Book|Reserve|Find|Order] a {x} from one [place|city] to another[|.]",
    """
    [Book|Reserve|Find|Order] a {x} from {a} to {b} [on|for] {c}[|.|, please.]
    [Can|Could] you [book|find|reserve|order] a {x} from {a} to {b} on {c}?
    [I need|I want|I would like] a {x} from {a} to {b} on {c}[|.]
    """,
    ValueSlot(("from", "origin", "start", "departure", "from_city"), town),
    ValueSlot(("to", "destination", "end", "arrival", "to_city"), town),
    ValueSlot(("date", "day", "when", "on"), day),
    done="Done: the {x} from {a} to {b} on {c} is booked.",
)
SEAT = _kind(
    TABLES,
    "[book|reserve|rent]_{x}\n{x}_[booking|reservation]",
    "[Book|Reserve|Rent] a {x} for [some people|a number of people|guests][|.]",
    """
    [Book|Reserve|Rent] a {x} at {a} for {b} people at {c}[|.|, please.]
    [Can|Could] you [book|reserve] a {x} at {a} for {b} people at {c}?
    [I need|I want|We need] a {x} at {a} for {b} people at {c}[|.]
    """,
    ValueSlot(("place", "where", "restaurant", "venue", "at"), company),
    ValueSlot(("people", "guests", "persons", "party_size", "seats"), number(2, 20), "integer"),
    ValueSlot(("time", "hour", "when", "start"), clock),
    done="Done: the {x} at {a} for {b} people at {c} is booked.",
)
SEARCH = _kind(
    SEARCHED,
    "[search|find|look_up]_{xs}\n{x}_[search|finder|lookup]",
    "[Search|Find|Look for|Searches] {xs} by [words|a query|keywords][|.]",
    """
    [Search for|Find|Look for|Show me|Get me] {xs} [about|on] {q}{a}{q}[|.|, please.]
    [Can|Could] you [search for|find|look for] {xs} [about|on] {q}{a}{q}?
    [I need|I want|I am looking for] {xs} [about|on] {q}{a}{q}[|.]
    """,
    ValueSlot(("query", "words", "keywords", "q", "search", "topic"), phrase),
)
END = _kind(
    ENDED,
    "[cancel|stop|end|delete|close]_{x}\n{x}_[cancel|delete|stop]",
    "[Cancel|Stop|End|Delete|Close|Cancels] a {x}[|.| by its id.]",
    """
    [Cancel|Stop|End|Delete|Close] [|the |my ]{x} {a}[|.|, please.]
    [Can|Could] you [cancel|stop|end|delete|close] [|the |my ]{x} {a}?
    [I want|I would like] to [cancel|end|stop] [|the |my ]{x} {a}[|.]
    """,
    ValueSlot(
        ("id", "number", "code", "key", "reference"), lambda draw: ENTITIES["order"].make(draw)
    ),
    done="Done: the {x} {a} is cancelled.",
)
FILE = _kind(
    listed(
        "file, document, script, page, log, image, sheet, config, archive, table, record, draft"
    ),
    "[read|open|load|delete|print|show]_{x}\n{x}_[read|open|load]",
    "[Read|Open|Load|Show|Reads] a {x}[|.| from disk.| by its path.]",
    """
    [Read|Open|Load|Show|Print] the {x} {a}[|.|, please.]
    [Can|Could] you [read|open|load|show] the {x} {a}?
    [What is in|Show me what is in|Tell me what is in] the {x} {a}[?|.]
    """,
    ValueSlot(("path", "file", "filename", "name", "source"), path),
)
COMPUTE = _kind(
    listed("add, multiply, subtract, divide, gcd, average, power, modulo, hypotenuse, product"),
    "{x}\n{x}_[numbers|two|values]\n[calc|compute|do]_{x}",
    "[Computes|Calculate|Gives|Work out] the {x} of two numbers[|.]",
    """
    [Use {x} with|Apply {x} to|Run {x} on|Call {x} with] {a} and {b}[|.|, please.]
    [What is|Compute|Calculate|Tell me|Work out] the {x} of {a} and {b}[?|.]
    [Can|Could] you [compute|calculate|work out] the {x} of {a} and {b}?
    """,
    ValueSlot(("a", "x", "first", "left", "m"), number(2, 9999), "number"),
    ValueSlot(("b", "y", "second", "right", "n"), number(2, 9999), "number"),
)
NONE = _kind(
    listed("""
    time, date, news, battery level, user name, version, uptime, location, weekday, free memory, \
host name,
    joke of the day, quote of the day, moon phase, disk space, volume, holiday list, score \
board, status
    """),
    "[get|read|show|check]_{x}\n[current|my]_{x}\n{x}_now",
    "[Get|Read|Show|Returns|Tells] the [current |]{x}[|.| of now.]",
    """
    [What is|What's|Tell me|Show me|Give me|Check] the [current |]{x}[?|.|, please.| now?]
    [Can|Could] you [tell me|show me|check] the [current |]{x}?
    [I need|I want to know|Look up] the [current |]{x}[|.]
    """,
)
DO = _kind(
    VERBS,
    "{x}_[item|object|thing|it|one]\n[do|make]_{x}\n{x}",
    "[{x}|Let the robot {x}|Please {x}|To {x}] [a thing|an object|something][|.]",
    """
    [|Please ]{x} the {a}[|.|, please.|!| for me.]
    [Can|Could] you {x} the {a}[?|, please?]
    [I want you to|Make sure to|It is time to|Do not forget to] {x} the {a}[|.|!]
    The {a}: [please {x} it|{x} it, please][|.]
    """,
    ValueSlot(("object", "item", "thing", "what", "target", "name"), item),
    done="Done: {x} the {a}.",
)
DO_MUCH = _kind(
    VERBS,
    "{x}_[item|object|thing|many]\n[do|make]_{x}",
    "[{x}|Let the robot {x}] [things|some things|a number of things][|.]",
    """
    [|Please ]{x} {b} of the {a}[|.|, please.|!]
    [Can|Could] you {x} {b} of the {a}[?|, please?]
    [I want you to|It is time to] {x} {b} of the {a}[|.]
    """,
    ValueSlot(("object", "item", "thing", "what", "target"), item),
    ValueSlot(("count", "number", "times", "amount", "how_many"), number(2, 200), "integer"),
    done="Done: {x} {b} of the {a}.",
)
ACTIONS = (
    DO,
    DO_MUCH,
    DATED,
    MAKE,
    PLAN,
    SEND,
    ADJUST,
    SWITCH,
    CONVERT,
    BOOK,
    SEAT,
    SEARCH,
    END,
    FILE,
    COMPUTE,
    NONE,
)
