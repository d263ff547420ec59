"""Transcripts of Phi 4 mini."""

from tests.text.dialects.transcripts import PARIS, Calls, Table, Transcript, json_call, thoughts


def write(calls: Calls) -> str:
    return f"<|tool_call|>[{', '.join(json_call(*call) for call in calls)}]<|/tool_call|>"


ROWS = [
    Transcript(
        label="behind a word",
        text=f"functools[{json_call('get_weather', PARIS)}]",
        calls=(("get_weather", PARIS),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in ["functools are", "functools[", "functools[1]", "the functools module"]
    ),
]
TABLE = Table(
    dialect="phi4",
    template="'<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + '<|/tool|>'",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
