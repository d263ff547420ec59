"""Transcripts of Granite 3."""

from tests.text.dialects.tables import hermes
from tests.text.dialects.transcripts import PARIS, Calls, Table, Transcript, json_call, thoughts


def write(calls: Calls) -> str:
    return f"<|tool_call|>[{', '.join(json_call(*call) for call in calls)}]"


ROWS = [
    Transcript(
        label="thoughts in words",
        text="Here is my thought process:\n\nHm.\n\nHere is my response:\n\nYes.",
        thought="Hm.",
        content="Yes.",
    ),
    Transcript(
        label="a framed answer",
        text="<think>Hm.</think>\n\n<response>\nYes: </resp>.\n</response>",
        thought="Hm.",
        content="Yes: </resp>.",
    ),
    Transcript(
        label="a framed call",
        text=f"<think>Hm.</think><response>So:\n{write([('get_weather', PARIS)])}\n</response>",
        thought="Hm.",
        content="So:",
        calls=(("get_weather", PARIS),),
    ),
    Transcript(label="a frame without end", text="<response>Yes\n</resp", content="Yes\n</resp"),
    Transcript(label="a frame in a text", text="Use <response>.", content="Use <response>."),
    Transcript(
        label="a frame is not split off",
        text="<response>Yes</response>",
        content="<response>Yes</response>",
        split_thoughts=False,
    ),
    Transcript(
        label="the form of Granite 4",
        text=hermes.write([("get_weather", PARIS)]),
        calls=(("get_weather", PARIS),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in ["<|tool_call|>", "<|tool_call|>[]", "<|tool_call|>[1]", "Here is my thought"]
    ),
]
TABLE = Table(
    dialect="granite",
    template="{{ '<|start_of_role|>system<|end_of_role|>' }}write <|tool_call|> followed by a JSON"
    " list of tools",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
