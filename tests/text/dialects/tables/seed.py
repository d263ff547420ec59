"""Transcripts of Seed OSS."""

from tests.text.dialects.transcripts import Calls, Table, Transcript, argument, thoughts


def write(calls: Calls) -> str:
    return "\n".join(f"<seed:tool_call>\n{one(*call)}\n</seed:tool_call>" for call in calls)


def one(name: str, arguments: dict[str, object]) -> str:
    parameters = [
        f"<parameter={key}>{argument(value)}</parameter>\n" for key, value in arguments.items()
    ]
    return f"<function={name}>\n{''.join(parameters)}</function>"


ROWS = [
    Transcript(
        label="a transcript of Seed OSS",
        text="<seed:think>Let me look.</seed:think>\n<seed:tool_call>\n<function=get_weather>\n"
        "<parameter=city>Paris</parameter>\n<parameter=days>2</parameter>\n</function>\n"
        "</seed:tool_call>",
        thought="Let me look.",
        calls=(("get_weather", '{"city": "Paris", "days": 2}'),),
    ),
    Transcript(
        label="malformed",
        text="<seed:tool_call>\nping\n</seed:tool_call>",
        content="<seed:tool_call>\nping\n</seed:tool_call>",
    ),
]
TABLE = Table(
    dialect="seed",
    template="{%- set toolcall_begin_token = '<seed:tool_call>' -%}<function=",
    write=write,
    rows=[*thoughts("<seed:think>", "</seed:think>", write), *ROWS],
)
