"""Transcripts of Qwen 3 Coder."""

from tests.text.dialects.transcripts import (
    Calls,
    Table,
    Transcript,
    argument,
    json_call,
    thoughts,
)


def write(calls: Calls) -> str:
    return "\n".join(f"<tool_call>\n{function(*call)}\n</tool_call>" for call in calls)


def function(name: str, arguments: dict[str, object]) -> str:
    parameters = [
        f"<parameter={key}>\n{argument(value)}\n</parameter>\n" for key, value in arguments.items()
    ]
    return f"<function={name}>\n{''.join(parameters)}</function>"


def typed(value: str, expected: str, key: str = "score") -> Transcript:
    text = f"<function=search><parameter={key}>{value}</parameter></function>"
    return Transcript(
        label=f"{key} {value!r}", text=text, calls=(("search", f'{{"{key}": {expected}}}'),)
    )


ROWS = [
    Transcript(
        label="a transcript of Qwen 3 Coder",
        text="I'll look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n"
        "</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        content="I'll look.",
        calls=(("get_weather", '{"city": "Paris", "days": 2}'),),
    ),
    Transcript(
        label="JSON instead",
        text=f"<tool_call>\n{json_call('get_weather', {'city': 'a'})}\n</tool_call>",
        calls=(("get_weather", '{"city": "a"}'),),
    ),
    Transcript(
        label="no outer marks",
        text=function("ping", {}) + "\n" + function("ping", {}) + "\nSo.",
        content="So.",
        calls=(("ping", "{}"), ("ping", "{}")),
    ),
    Transcript(
        label="several in one block",
        text=f"<tool_call>{function('ping', {})}{function('ping', {})}</tool_call>So.",
        content="So.",
        calls=(("ping", "{}"), ("ping", "{}")),
    ),
    Transcript(
        label="something else between parameters",
        text="<tool_call><function=ping>\nwell</function></tool_call>",
        content="well</function></tool_call>",
        calls=(("ping", ""),),
    ),
    Transcript(
        label="code with marks of others",
        text=function("search", {"query": '\nif a < b:\n  print("</p>", <x>)\n'}),
        calls=(("search", {"query": '\nif a < b:\n  print("</p>", <x>)\n'}),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "<tool_call>\n<function=",
            "<tool_call>\n<function=get_weather",
            "<tool_call></tool_call>",
            "<tool_call>\nping\n</tool_call>",
            "<function=pingpong></function>",
            "<parameter=a>\n1\n</parameter></function>",
        ]
    ),
    typed("1.50", "1.50"),
    typed("null", "null"),
    typed("None", "null"),
    typed("much", '"much"'),
    typed("TRUE", "true", "exact"),
    typed("[1, 2]", "[1, 2]", "other"),
    typed("12 apples", '"12 apples"', "other"),
    typed("12", '"12"', "query"),
    typed("{'a': True}", '{"a": true}', "filter"),
    typed("\n\n two \n\n", '"\\n two \\n"', "query"),
]
TABLE = Table(
    dialect="qwen3_coder",
    template="For each function call, use <tool_call>\n<function=example_function_name>\n"
    "<parameter=example_parameter_1>\n",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
