"""Transcripts of FunctionGemma."""

from tests.text.dialects.transcripts import Calls, Table, Transcript, json_call


def write(calls: Calls) -> str:
    return "".join(one(*call) for call in calls)


def one(name: str, arguments: dict[str, object]) -> str:
    return f"<start_function_call>call:{name}{notation(arguments, '<escape>')}<end_function_call>"


def notation(value: object, quote: str) -> str:
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case list():
            return f"[{','.join(notation(item, quote) for item in value)}]"
        case dict():
            members = [f"{key(name)}:{notation(item, quote)}" for name, item in value.items()]
            return f"{{{','.join(members)}}}"
    return str(value)


def key(name: str) -> str:
    return name if name.isalnum() else f'"{name}"'


ROWS = [
    Transcript(
        label="a transcript of FunctionGemma",
        text="<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}"
        "<end_function_call>",
        calls=(("get_weather", '{"city":"Paris","days":2}'),),
    ),
    Transcript(
        label="JSON strings",
        text='<start_function_call>call:get_weather{"city": "Paris"}<end_function_call>',
        calls=(("get_weather", '{"city": "Paris"}'),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "<start_function_call>",
            "<start_function_call>ping{}",
            "<start_function_call>call:ping[]<end_function_call>",
            "<start_function_call>call:pingpong{}<end_function_call>",
            json_call("ping", {}),
            "<escape>",
        ]
    ),
]
TABLE = Table(
    dialect="gemma",
    template="{{- '<start_function_call>call:' + tool_call.function.name + '{' -}}<escape>",
    write=write,
    rows=ROWS,
)
