"""Transcripts of Hunyuan A13B."""

from tests.text.dialects.tables.jamba import write
from tests.text.dialects.transcripts import PARIS, Table, Transcript, thoughts

CALL = write([("get_weather", PARIS)])
ROWS = [
    Transcript(
        label="an answer",
        text="<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>",
        thought="Hm.",
        content="Yes.",
    ),
    Transcript(
        label="a call",
        text=f"<think>\n\n</think>\n<answer>{CALL}</answer>",
        calls=(("get_weather", PARIS),),
    ),
    Transcript(
        label="no thought",
        text="<answer>\nYes.\n</answer>\nMore.",
        content="Yes.\nMore.",
        tools=(),
    ),
]
TABLE = Table(
    dialect="hunyuan",
    template="{{ '<tool_calls>' + ns.tool_calls + '</tool_calls>' }}{{ content + '<|extra_0|>' }}",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
