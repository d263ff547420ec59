"""Transcripts of Mistral."""

from tests.text.dialects.transcripts import Calls, Table, Transcript, compact, thoughts


def write(calls: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{compact(arguments)}" for name, arguments in calls)


ROWS = [
    Transcript(
        label="the list of older models",
        text='[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "a"}, "id": "vAHeLlhQE"},'
        ' {"name": "ping", "arguments": {}}]',
        calls=(("get_weather", '{"city": "a"}'), ("ping", "{}")),
    ),
    Transcript(
        label="with an id",
        text='[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "a"}',
        calls=(("get_weather", '{"city": "a"}'),),
        ids=("a1B2c3D4e",),
    ),
    Transcript(
        label="without the mark of arguments",
        text='[TOOL_CALLS]get_weather{"city": "a"}',
        calls=(("get_weather", '{"city": "a"}'),),
    ),
    Transcript(
        label="a broken list",
        text='[TOOL_CALLS][{"name": "ping", "arguments": {}} {"name"',
        content='{"name"',
        calls=(("ping", "{}"),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "[TOOL_CALLS]",
            "[TOOL_CALLS] []",
            "[TOOL_CALLS]ping pong",
            "[TOOL_CALLS]ping[CALL_ID]",
            "[ARGS]{}",
            "[TOOL_CALLS]ping[ARGS][1]",
        ]
    ),
]
TABLE = Table(
    dialect="mistral",
    template='{%- if message.tool_calls %}{{- "[TOOL_CALLS]" }}{{- "[ARGS]" }}{%- endif %}',
    write=write,
    rows=[*thoughts("[THINK]", "[/THINK]", write), *ROWS],
)
