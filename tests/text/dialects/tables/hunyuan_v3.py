"""Transcripts of Hy3."""

from tests.text.dialects.tables import glm
from tests.text.dialects.transcripts import Calls, Table, Transcript, thoughts


def write(calls: Calls) -> str:
    return f"<tool_calls>\n{''.join(one(*call) for call in calls)}</tool_calls>"


def one(name: str, arguments: dict[str, object]) -> str:
    return glm.one(name, arguments).replace(f"{name}\n", f"{name}<tool_sep>\n", 1) + "\n"


ROWS = [
    Transcript(
        label="on one line",
        text="<tool_calls><tool_call>ping<tool_sep></tool_call></tool_calls>",
        calls=(("ping", "{}"),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "<tool_calls><tool_call>ping</tool_call></tool_calls>",
            "<tool_calls></tool_calls>",
            "<tool_call>ping<tool_sep></tool_call>",
        ]
    ),
]
TABLE = Table(
    dialect="hunyuan_v3",
    template="<tool_calls>\n<tool_call>{function-name}<tool_sep>\n<arg_key>{key}</arg_key>",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS],
)
