"""Transcripts of Gemma 4."""

from tests.text.dialects.tables.gemma import notation
from tests.text.dialects.transcripts import Calls, Table, Transcript, thoughts


def write(calls: Calls) -> str:
    return "".join(one(*call) for call in calls)


def one(name: str, arguments: dict[str, object]) -> str:
    quote = '<|"|>'
    return f"<|tool_call>call:{name}{notation(arguments, quote)}<tool_call|>"


ROWS = [
    Transcript(
        label="a transcript of Gemma 4",
        text="<|channel>thought\nHm.\n<channel|><|tool_call>call:get_weather{city:"
        '<|"|>Paris<|"|>}<tool_call|>',
        thought="Hm.",
        calls=(("get_weather", '{"city":"Paris"}'),),
    ),
]
TABLE = Table(
    dialect="gemma4",
    template="{{- '<|tool_call>call:' + function['name'] + '{' -}}<tool_call|>",
    write=write,
    rows=[*thoughts("<|channel>thought", "<channel|>", write), *ROWS],
)
