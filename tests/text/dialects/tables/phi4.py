"""Transcripts of Phi 4 mini."""

from tests.text.dialects.transcripts import PARIS, Calls, Table, Transcript, json_call, thoughts


def write(calls: Calls) -> str:
    return f"functools[{', '.join(json_call(*call) for call in calls)}]"


ROWS = [
    Transcript(
        label="between marks",
        text=f"<|tool_call|>[{json_call('get_weather', PARIS)}]<|/tool_call|>",
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
