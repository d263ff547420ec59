"""Transcripts of GLM."""

from tests.text.dialects.transcripts import (
    Calls,
    Table,
    Transcript,
    argument,
    json_call,
    thoughts,
)


def write(calls: Calls) -> str:
    return "\n".join(one(*call) for call in calls)


def one(name: str, arguments: dict[str, object]) -> str:
    parameters = [
        f"<arg_key>{key}</arg_key>\n<arg_value>{argument(value)}</arg_value>\n"
        for key, value in arguments.items()
    ]
    return f"<tool_call>{name}\n{''.join(parameters)}</tool_call>"


ROWS = [
    Transcript(
        label="a transcript of GLM 4.5",
        text="\n<think>Simple.</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
        "<arg_value>北京</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        thought="Simple.",
        calls=(("get_weather", '{"city": "北京", "days": 3}'),),
    ),
    Transcript(
        label="a transcript of GLM 4.7",
        text="<tool_call>get_weather<arg_key>city</arg_key><arg_value>a\n</arg_value></tool_call>",
        calls=(("get_weather", '{"city": "a\\n"}'),),
    ),
    Transcript(label="a name alone", text="<tool_call>ping</tool_call>", calls=(("ping", "{}"),)),
    Transcript(
        label="JSON instead",
        text=f"<tool_call>\n{json_call('get_weather', {'city': 'a'})}\n</tool_call>",
        calls=(("get_weather", '{"city": "a"}'),),
    ),
    Transcript(
        label="a key without its value",
        text="<tool_call>ping\n<arg_key>a</arg_key>\n</tool_call>",
        content="</tool_call>",
        calls=(("ping", ""),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "<tool_call>",
            "<tool_call></tool_call>",
            "<tool_call>ping pong</tool_call>",
            "<tool_call>ping",
            "<arg_key>a</arg_key>",
        ]
    ),
]
TABLE = Table(
    dialect="glm",
    template="<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
