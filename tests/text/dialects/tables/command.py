"""Transcripts of Command R7B and A."""

from tests.text.dialects.transcripts import Calls, Table, Transcript, compact, thoughts


def write(calls: Calls) -> str:
    written = [
        f'    {{"tool_call_id": "{index}", "tool_name": "{name}",'
        f' "parameters": {compact(arguments)}}}'
        for index, (name, arguments) in enumerate(calls)
    ]
    return "<|START_ACTION|>[\n" + ",\n".join(written) + "\n]<|END_ACTION|>"


ROWS = [
    Transcript(
        label="a transcript of Command R7B",
        text="<|START_THINKING|>I will look.<|END_THINKING|><|START_ACTION|>[\n    {"
        '"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}\n]'
        "<|END_ACTION|>",
        thought="I will look.",
        calls=(("get_weather", '{"city": "Paris"}'),),
    ),
    Transcript(
        label="malformed",
        text="<|START_ACTION|>[]<|END_ACTION|>",
        content="<|START_ACTION|>[]<|END_ACTION|>",
    ),
]
TABLE = Table(
    dialect="command",
    template="<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_ACTION|>[",
    write=write,
    rows=[*thoughts("<|START_THINKING|>", "<|END_THINKING|>", write), *ROWS],
)
