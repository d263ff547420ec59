"""Transcripts of Kimi K2."""

from tests.text.dialects.transcripts import PARIS, Calls, Table, Transcript, compact, thoughts

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"


def write(calls: Calls) -> str:
    written = [one(f"functions.{call[0]}:{index}", call[1]) for index, call in enumerate(calls)]
    return f"{SECTION}{''.join(written)}{SECTION_END}"


def one(call_id: str, arguments: dict[str, object]) -> str:
    argued = f"<|tool_call_argument_begin|>{compact(arguments)}"
    return f"<|tool_call_begin|>{call_id}{argued}<|tool_call_end|>"


ROWS = [
    Transcript(
        label="ids are kept",
        text=f"{SECTION}{one('functions.ping:3', {})}{one('ping:4', {})}{SECTION_END}",
        calls=(("ping", "{}"), ("ping", "{}")),
        ids=("functions.ping:3", "ping:4"),
    ),
    Transcript(
        label="an id that stands twice",
        text=f"{SECTION}{one('functions.ping:1', {}) * 3}{SECTION_END}",
        calls=(("ping", "{}"),) * 3,
        ids=("functions.ping:1", "functions.ping:2", "functions.ping:3"),
    ),
    Transcript(
        label="an id that is a name alone",
        text=f"{SECTION}{one('ping', {})}{SECTION_END}",
        calls=(("ping", "{}"),),
        ids=("functions.ping:0",),
    ),
    Transcript(
        label="a thought that calls end",
        text=f"<think>Hm\n{write([('get_weather', PARIS)])}",
        thought="Hm",
        calls=(("get_weather", PARIS),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            f"{SECTION}{SECTION_END}",
            f"{SECTION}<|tool_call_begin|>functions.ping:0<|tool_call_end|>",
            f"{SECTION}{one('functions.:0', {})}",
            f"{SECTION}<|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>[1]",
            one("functions.ping:0", {}),
        ]
    ),
]
TABLE = Table(
    dialect="kimi",
    template="{{- '<|tool_calls_section_begin|>' -}}<|tool_call_begin|>{{ tool_call['id'] }}",
    write=write,
    rows=[*thoughts("<think>", "</think>", write, broken=True), *ROWS],
)
