"""Transcripts of DeepSeek V3 and R1."""

from deployments.text.dialects.families.deepseek import CALL, CALL_END, CALLS, CALLS_END, SEPARATOR
from tests.text.dialects.transcripts import PARIS, Calls, Table, Transcript, compact, thoughts


def write(calls: Calls) -> str:
    return f"{CALLS}{chr(10).join(one(*call) for call in calls)}{CALLS_END}"


def one(name: str, arguments: dict[str, object]) -> str:
    written = f"```json\n{compact(arguments)}\n```"
    return f"{CALL}function{SEPARATOR}{name}\n{written}{CALL_END}"


ROWS = [
    Transcript(
        label="a transcript of DeepSeek R1",
        text="<think>\nOkay.\n</think>\n\n<\uff5ctool▁calls▁begin\uff5c><\uff5ctool▁call▁begin\uff5c>"
        'function<\uff5ctool▁sep\uff5c>get_weather\n```json\n{"city": "Tokyo"}\n```'
        "<\uff5ctool▁call▁end\uff5c><\uff5ctool▁calls▁end\uff5c>",
        thought="Okay.",
        calls=(("get_weather", '{"city": "Tokyo"}'),),
    ),
    Transcript(
        label="a thought that calls end",
        text=f"<think>Hm\n{write([('get_weather', PARIS)])}",
        thought="Hm",
        calls=(("get_weather", PARIS),),
    ),
    Transcript(
        label="an unknown tool after a known one",
        text=f"{CALLS}{one('ping', {})}{one('pong', {})}{CALLS_END}",
        content=f"{one('pong', {})}{CALLS_END}",
        calls=(("ping", "{}"),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            f"{CALLS}{CALLS_END}",
            f"{CALLS}{CALL}function{SEPARATOR}ping\n{{}}{CALL_END}",
            f"{CALLS}{CALL}ping{SEPARATOR}[1]{CALL_END}",
            f"{CALL}function{SEPARATOR}ping",
        ]
    ),
]
TABLE = Table(
    dialect="deepseek",
    template=f"'{CALLS}{CALL}' + tool['type'] + '{SEPARATOR}' + tool['function']['name'] +"
    r" '\n' + '```json' + '\n'",
    write=write,
    rows=[*thoughts("<think>", "</think>", write, broken=True), *ROWS],
)
