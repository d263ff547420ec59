"""Transcripts of DeepSeek V3.1."""

from deployments.text.dialects.families.deepseek import CALL, CALL_END, CALLS, CALLS_END, SEPARATOR
from tests.text.dialects.transcripts import Calls, Table, Transcript, compact, thoughts


def write(calls: Calls) -> str:
    return f"{CALLS}{''.join(one(*call) for call in calls)}{CALLS_END}"


def one(name: str, arguments: dict[str, object]) -> str:
    return f"{CALL}{name}{SEPARATOR}{compact(arguments)}{CALL_END}"


ROWS = [
    Transcript(
        label="something between calls",
        text=f"{CALLS}{one('ping', {})} and {one('ping', {})}{CALLS_END}",
        content=f"and {one('ping', {})}{CALLS_END}",
        calls=(("ping", "{}"),),
    ),
]
TABLE = Table(
    dialect="deepseek_v31",
    template=f"{{{{'{CALL}'+ tool['function']['name'] + '{SEPARATOR}' + tool['function']",
    write=write,
    rows=[*thoughts("<think>", "</think>", write, broken=True), *ROWS],
)
