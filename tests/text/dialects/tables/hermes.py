"""Transcripts of Hermes and Qwen."""

from tests.text.dialects.transcripts import (
    PARIS,
    Calls,
    Table,
    Transcript,
    json_call,
    stray_end,
    thoughts,
)


def write(calls: Calls) -> str:
    return "\n".join(f"<tool_call>\n{json_call(*call)}\n</tool_call>" for call in calls)


MALFORMED = [
    "<tool_call>",
    "<tool_call></tool_call>",
    "<tool_call>\nnot json\n</tool_call>",
    '<tool_call>{"name": "get_weather" "arguments": {}}</tool_call>',
    '<tool_call>{"arguments": {"city": "Paris"}}</tool_call>',
    '<tool_call>{"name": ["get_weather"], "arguments": {}}</tool_call>',
    '<tool_call>{"name": "get_weather", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": "get_weather", "arguments": "no object"}</tool_call>',
    "</tool_call> a <tool_cal> b <tool_call",
]
ROWS = [
    *(Transcript(label=f"malformed {text}", text=text, content=text) for text in MALFORMED),
    Transcript(
        label="a transcript of Qwen 3",
        text="<think>\nThe user wants the weather.\n</think>\n\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>',
        thought="The user wants the weather.",
        calls=(("get_weather", '{"city": "Paris", "days": 2}'),),
    ),
    Transcript(
        label="arguments before the name",
        text='<tool_call>{"arguments": {"city": "a"}, "id": [{}], "name": "get_weather"}'
        "</tool_call>",
        calls=(("get_weather", '{"city": "a"}'),),
    ),
    Transcript(
        label="arguments as a string",
        text=r'<tool_call>{"name": "ping", "arguments": "{\"a\": \"\\u00e9\"}"}</tool_call>',
        calls=(("ping", '{"a": "é"}'),),
    ),
    Transcript(
        label="no arguments and none at all",
        text='<tool_call>{"name": "ping"}</tool_call><tool_call>{"name": "ping", "arguments": null}'
        "</tool_call>",
        calls=(("ping", "{}"), ("ping", "{}")),
    ),
    Transcript(
        label="a list of calls",
        text='<tool_call>[{"name": "ping"}, {"name": "ping"}]</tool_call>',
        calls=(("ping", "{}"), ("ping", "{}")),
    ),
    Transcript(
        label="a list with an unknown tool",
        text='<tool_call>[{"name": "ping"}, {"name": "pong"}]</tool_call>',
        content=', {"name": "pong"}]</tool_call>',
        calls=(("ping", "{}"),),
    ),
    Transcript(
        label="as Python writes it",
        text="<tool_call>{'name': 'ping', 'arguments': {'a': True, 'b': None, 'c': 'it\"s',}}"
        "</tool_call>",
        calls=(("ping", '{"a": true, "b": null, "c": "it\\"s"}'),),
    ),
    Transcript(
        label="line breaks and unknown escapes in strings",
        text='<tool_call>{"name": "ping", "arguments": {"a": "x\ny\\d\\x41\\u00e9"}}</tool_call>',
        calls=(("ping", '{"a": "x\\ny\\\\d\\u0041\\u00e9"}'),),
    ),
    Transcript(
        label="broken within the arguments",
        text='<tool_call>{"name": "ping", "arguments": {"a": 1 oops}}</tool_call> So.',
        content="oops}}</tool_call> So.",
        calls=(("ping", '{"a": 1 '),),
    ),
    Transcript(
        label="no end mark between",
        text='<tool_call>{"name": "ping"}\n<tool_call>{"name": "ping"}\nSo.',
        content="So.",
        calls=(("ping", "{}"), ("ping", "{}")),
    ),
    Transcript(
        label="a mark within a failed call",
        text='<tool_call><tool_call>{"name": "ping"}</tool_call>',
        content="<tool_call>",
        calls=(("ping", "{}"),),
    ),
    Transcript(
        label="thought in the middle of text",
        text="The mark <think> opens a thought.",
        content="The mark <think> opens a thought.",
    ),
    Transcript(
        label="thought opened twice",
        text="<think>\nHm</think>Yes",
        thought="Hm",
        content="Yes",
        thinking=True,
    ),
    Transcript(
        label="thoughts between calls",
        text=f"{write([('ping', {})])}\n<think>Hm</think>\n{write([('get_weather', PARIS)])}",
        thought="Hm",
        calls=(("ping", {}), ("get_weather", PARIS)),
    ),
    stray_end("</think>"),
]
TABLE = Table(
    dialect="hermes",
    template="{%- if tools %}{{- '<|im_start|>system\\n' }}For each function call, return a json"
    " object with function name and arguments within <tool_call></tool_call> XML tags",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
