"""Transcripts of Jamba and Apriel."""

from tests.text.dialects.transcripts import PARIS, Calls, Table, Transcript, json_call, thoughts


def write(calls: Calls) -> str:
    return f"<tool_calls>[{', '.join(json_call(*call) for call in calls)}]</tool_calls>"


LINE = json_call("get_weather", PARIS)
ROWS = [
    Transcript(
        label="lines and quoted arguments",
        text='<tool_calls>[\n    {"name": "ping", "arguments": "{}"}\n]</tool_calls>',
        calls=(("ping", "{}"),),
    ),
    Transcript(
        label="MiniMax M1, a call a line",
        text=f"<tool_calls>\n{LINE}\n{LINE}\n</tool_calls>",
        calls=(("get_weather", PARIS),) * 2,
    ),
    Transcript(
        label="a line that is no call",
        text=f"<tool_calls>\n{LINE}\n{{1}}\n</tool_calls>",
        content="{1}\n</tool_calls>",
        calls=(("get_weather", PARIS),),
    ),
    Transcript(
        label="no end mark",
        text=f"<tool_calls>[{json_call('get_weather', PARIS)}]",
        calls=(("get_weather", PARIS),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "<tool_calls>",
            "<tool_calls>[]</tool_calls>",
            "<tool_calls>[1]</tool_calls>",
            "</tool_calls>",
        ]
    ),
]
TABLE = Table(
    dialect="jamba",
    template="{{- '<tool_calls>[' -}}{%- for call in message.tool_calls -%}",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
