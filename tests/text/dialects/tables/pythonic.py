"""Transcripts of Llama 4, LFM2 and OLMo 3."""

from tests.text.dialects.transcripts import (
    PARIS,
    Calls,
    Table,
    Transcript,
    json_call,
    thoughts,
)


def write(calls: Calls) -> str:
    return f"[{', '.join(one(*call) for call in calls)}]"


def one(name: str, arguments: dict[str, object]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


ROWS = [
    Transcript(
        label="a transcript of Llama 4",
        text="[get_weather(city='San Francisco', days=2), ping()]",
        calls=(("get_weather", '{"city": "San Francisco", "days": 2}'), ("ping", "{}")),
    ),
    Transcript(
        label="between Llama 4's marks",
        text=f"<|python_start|>{write([('get_weather', PARIS)])}<|python_end|>",
        calls=(("get_weather", PARIS),),
    ),
    Transcript(
        label="a transcript of LFM2",
        text='<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>Looking.',
        content="Looking.",
        calls=(("get_weather", '{"city": "Paris"}'),),
    ),
    Transcript(
        label="a transcript of OLMo 3",
        text='<function_calls>get_weather(city="Paris")\nping()</function_calls>',
        calls=(("get_weather", '{"city": "Paris"}'), ("ping", "{}")),
    ),
    Transcript(
        label="JSON instead",
        text=json_call("get_weather", PARIS, "parameters"),
        calls=(("get_weather", PARIS),),
    ),
    Transcript(
        label="Python's own notation",
        text="[search(query='it\\'s \\x41 \\d \"q\"', exact=True, score=.5, filter={'a': None,},)]",
        calls=(
            (
                "search",
                '{"query": "it\'s \\u0041 \\\\d \\"q\\"", "exact": true, "score": 0.5,'
                ' "filter": {"a": null}}',
            ),
        ),
    ),
    Transcript(
        label="an argument without its name",
        text="[get_weather(days=1, 'Paris')]",
        content="'Paris')]",
        calls=(("get_weather", '{"days": 1'),),
    ),
    Transcript(
        label="an unknown tool after a known one",
        text="[ping(), pong()]",
        content=", pong()]",
        calls=(("ping", "{}"),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "[1] See there.",
            "[]",
            "[ping]",
            "[ping(1)]",
            "[ping(open('x'))]",
            "<|python_start|>1 + 1<|python_end|>",
            "Call [ping()]",
        ]
    ),
]
TABLE = Table(
    dialect="pythonic",
    template="you MUST put it in the format of [func_name1(params_name1=params_value1)]",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
    starts_only=True,
)
