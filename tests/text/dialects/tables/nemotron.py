"""Transcripts of Nemotron Nano 2."""

from tests.text.dialects.transcripts import PARIS, Calls, Table, Transcript, json_call, thoughts


def write(calls: Calls) -> str:
    return f"<TOOLCALL>[{', '.join(json_call(*call) for call in calls)}]</TOOLCALL>"


ROWS = [
    Transcript(
        label="lines and quoted arguments",
        text='<TOOLCALL>[\n    {"name": "ping", "arguments": "{}"}\n]</TOOLCALL>',
        calls=(("ping", "{}"),),
    ),
    Transcript(
        label="no end mark",
        text=f"<TOOLCALL>[{json_call('get_weather', PARIS)}]",
        calls=(("get_weather", PARIS),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "<TOOLCALL>",
            "<TOOLCALL>[]</TOOLCALL>",
            "<TOOLCALL>[1]</TOOLCALL>",
            "</TOOLCALL>",
        ]
    ),
]
TABLE = Table(
    dialect="nemotron",
    template="{{- '<TOOLCALL>[' -}}{%- for call in message.tool_calls -%}",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
