"""The parts of tables of transcripts, and the rows that every dialect's table has."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deployments.text.dialects.dialect import ReplyContext
from deployments.text.tool import Tool

Calls = Sequence[tuple[str, dict[str, object]]]
Write = Callable[[Calls], str]

WEATHER = Tool(
    "get_weather",
    "The weather in a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"enum": ["celsius", "kelvin"]},
        },
        "required": ["city"],
    },
)
SEARCH = Tool(
    "search",
    "",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "filter": {"type": "object"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "exact": {"type": "boolean"},
            "score": {"type": ["number", "null"]},
        },
    },
)
PING = Tool("ping", "", {"type": "object", "properties": {}})
TOOLS = (WEATHER, SEARCH, PING)

PARIS: dict[str, object] = {"city": "Paris", "days": 2}
ROME: dict[str, object] = {"city": "Roma", "unit": "kelvin"}
DEEP: dict[str, object] = {
    "query": 'say "hi" {not} a \\ brace } ] 日本 🙂\n\n\tit\'s </x>, a="1", \\n [a](b)',
    "filter": {"a": {"b": [1, -2.5e3, None, True, "}\\\"'"], "ü": {}}, "[": "]"},
    "tags": ["x, y", "", "é\\"],
    "exact": False,
    "score": 0.25,
}
PLAIN = "Hello {world} [1] <b>x</b> a = f(b), `c`\n\nBye: \"q\" 'r' | # ** \\ é 🙂"


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """A reply and what it says; arguments are compared as text when they are given as text."""

    label: str
    text: str
    content: str = ""
    thought: str = ""
    calls: tuple[tuple[str, object], ...] = ()
    ids: tuple[str, ...] | None = None
    tools: Sequence[Tool] = TOOLS
    thinking: bool = False
    split_thoughts: bool = True

    @property
    def context(self) -> ReplyContext:
        return ReplyContext(
            tools=self.tools, thinking=self.thinking, split_thoughts=self.split_thoughts
        )


@dataclass(frozen=True, kw_only=True)
class Table:
    """`write` writes calls as the family's chat templates do."""

    dialect: str
    template: str  # an excerpt of a chat template of the family
    write: Write
    rows: Sequence[Transcript]
    starts_only: bool = False  # calls stand at the start of a reply alone
    ends_turn: bool = False  # nothing follows calls
    text: Callable[[str], str] = field(default=str)  # how an answer in plain text is written

    @property
    def transcripts(self) -> list[Transcript]:
        return [*_texts(self), *_calls(self), *_no_calls(self), *self.rows]


def thoughts(start: str, end: str, write: Write, broken: bool = False) -> list[Transcript]:
    """Rows for a family whose thoughts stand between marks; `broken`: calls end them too."""
    call = write([("get_weather", PARIS)])
    paris = (("get_weather", PARIS),)
    whole = f"{start}\nHm, {{x}}.\n\nSo\n{end}\n\n"
    said, opened = "Hm, {x}.\n\nSo", whole.removeprefix(start) + "Yes."
    within = f"{start}{call}{end}"
    split = [
        Transcript(label="thought, text", text=whole + "Yes.\n", thought=said, content="Yes.\n"),
        Transcript(label="thought, call", text=whole + call, thought=said, calls=paris),
        Transcript(label="opened", text=opened, thought=said, content="Yes.", thinking=True),
        Transcript(label="no end", text=f"{start}Hm\n", thought="Hm\n"),
        Transcript(label="opened, no end", text="Hm <b>\n", thought="Hm <b>\n", thinking=True),
        Transcript(label="empty thought", text=f"{start}\n\n{end}\n\nYes", content="Yes"),
        Transcript(label="no tools", text=f"{start}a{end}b", thought="a", content="b", tools=()),
    ]
    texts = [(whole + "Yes.", False), (f"Hm{end} Yes", True), (within, False)]
    whole_texts = [
        Transcript(
            label=f"not split {at}",
            text=text,
            content=text,
            thinking=thinking,
            split_thoughts=False,
        )
        for at, (text, thinking) in enumerate(texts[: 2 if broken else 3])
    ]
    return [*split, *whole_texts]


def stray_end(end: str) -> Transcript:
    return Transcript(label="end of no thought", text=f"a{end}b", content=f"a{end}b")


def _texts(table: Table) -> list[Transcript]:
    return [
        Transcript(label="nothing", text=""),
        Transcript(label="plain text", text=table.text(PLAIN), content=PLAIN),
        Transcript(label="plain text, no tools", text=table.text(PLAIN), content=PLAIN, tools=()),
        Transcript(label="newlines", text=table.text("\n\n"), content="\n\n"),
    ]


def _calls(table: Table) -> list[Transcript]:
    write = table.write
    one, two = [("get_weather", PARIS)], [("get_weather", PARIS), ("get_weather", ROME)]
    rows = [
        Transcript(label="one call", text=write(one), calls=tuple(one)),
        Transcript(label="two calls", text=write(two), calls=tuple(two)),
        Transcript(label="no arguments", text=write([("ping", {})]), calls=(("ping", {}),)),
        Transcript(label="deep", text=write([("search", DEEP)]), calls=(("search", DEEP),)),
        Transcript(label="space before", text="\n\n" + write(one), calls=tuple(one)),
    ]
    if not table.starts_only:
        text = table.text("Let me see.") + "\n" + write(one)
        rows += [Transcript(label="text, call", text=text, content="Let me see.", calls=tuple(one))]
    if not table.ends_turn:
        text = write(one) + "\n\n" + table.text("Done.\n")
        rows += [Transcript(label="call, text", text=text, content="Done.\n", calls=tuple(one))]
    return rows


def _no_calls(table: Table) -> list[Transcript]:
    unknown = table.write([("launch", {"a": 1})])
    prefix = table.write([("get_weather_now", {"a": 1})])
    call = table.write([("get_weather", PARIS)])
    return [
        Transcript(label="unknown tool", text=unknown, content=unknown),
        Transcript(label="unknown longer name", text=prefix, content=prefix),
        Transcript(label="no tools", text=call, content=call, tools=()),
        Transcript(label="call cut short, unknown", text=unknown[:-1], content=unknown[:-1]),
    ]


def compact(arguments: dict[str, object]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def json_call(name: str, arguments: dict[str, object], key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {compact(arguments)}}}'


def argument(value: object) -> str:
    """Writes an argument as markup has it: strings as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
