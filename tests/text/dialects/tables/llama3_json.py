"""Transcripts of Llama 3.1 to 3.3."""

from tests.text.dialects.transcripts import (
    PARIS,
    Calls,
    Table,
    Transcript,
    json_call,
    thoughts,
)


def write(calls: Calls) -> str:
    return "; ".join(json_call(*call, key="parameters") for call in calls)


ROWS = [
    Transcript(
        label="a transcript of Llama 3.1",
        text='{"name": "get_weather", "parameters": {"city": "San Francisco, CA"}}',
        calls=(("get_weather", '{"city": "San Francisco, CA"}'),),
    ),
    Transcript(
        label="behind the mark",
        text='<|python_tag|>{"type": "function", "name": "ping", "parameters": {}}',
        calls=(("ping", "{}"),),
    ),
    Transcript(
        label="text, then the mark",
        text=f"I'll look.\n<|python_tag|>{write([('get_weather', PARIS)])}",
        content="I'll look.",
        calls=(("get_weather", PARIS),),
    ),
    Transcript(
        label="code behind the mark",
        text="<|python_tag|>print(1)",
        content="<|python_tag|>print(1)",
    ),
    Transcript(
        label="semicolon, then text",
        text='{"name": "ping", "parameters": {}}; so.',
        content="; so.",
        calls=(("ping", "{}"),),
    ),
    Transcript(
        label="JSON in the middle of text",
        text='Write {"name": "ping", "parameters": {}}',
        content='Write {"name": "ping", "parameters": {}}',
    ),
    Transcript(
        label="a tagged call",
        text='<function=get_weather>{"city": "a"}</function>',
        calls=(("get_weather", '{"city": "a"}'),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "{",
            "{}",
            '{"city": "Paris"}',
            '{"name": "get_weather", "parameters": 1}',
            '[{"a": 1}]',
            "<|python_tag|>",
            "<function=ping>oops</function>",
        ]
    ),
]
TABLE = Table(
    dialect="llama3_json",
    template='Respond in the format {"name": function name, "parameters": dictionary of argument'
    ' name and its value}. {{- "<|python_tag|>" + tool_call.name',
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
    starts_only=True,
)
