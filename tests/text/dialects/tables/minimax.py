"""Transcripts of MiniMax M2."""

from tests.text.dialects.transcripts import Calls, Table, Transcript, argument, thoughts


def write(calls: Calls) -> str:
    invoked = "\n".join(one(*call) for call in calls)
    return f"<minimax:tool_call>\n{invoked}\n</minimax:tool_call>"


def one(name: str, arguments: dict[str, object]) -> str:
    parameters = [
        f'<parameter name="{key}">{argument(value)}</parameter>\n'
        for key, value in arguments.items()
    ]
    return f'<invoke name="{name}">\n{"".join(parameters)}</invoke>'


ROWS = [
    Transcript(
        label="a transcript of MiniMax M2",
        text='<think>\nWeather.\n</think>\n\n<minimax:tool_call>\n<invoke name="get_weather">\n'
        '<parameter name="city">Paris</parameter>\n</invoke>\n</minimax:tool_call>',
        thought="Weather.",
        calls=(("get_weather", '{"city": "Paris"}'),),
    ),
    Transcript(
        label="an unknown tool after a known one",
        text='<minimax:tool_call><invoke name="ping"></invoke><invoke name="pong"></invoke>'
        "</minimax:tool_call>",
        content='<invoke name="pong"></invoke></minimax:tool_call>',
        calls=(("ping", "{}"),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "<minimax:tool_call>\n</minimax:tool_call>",
            '<minimax:tool_call><invoke name="ping',
            '<invoke name="ping"></invoke>',
        ]
    ),
]
TABLE = Table(
    dialect="minimax",
    template="{%- set toolcall_begin_token = '<minimax:tool_call>' -%}<invoke name=\"",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
