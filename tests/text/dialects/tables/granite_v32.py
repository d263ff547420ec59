"""Transcripts of Granite 3.2."""

from tests.text.dialects.tables.granite import write
from tests.text.dialects.transcripts import Table, Transcript, thoughts

START, END = "Here is my thought process:", "Here is my response:"
ROWS = [
    Transcript(
        label="in short",
        text="Here's my thought process:\nHm.\n\nHere's my response:\nYes.",
        thought="Hm.",
        content="Yes.",
    ),
    Transcript(label="as Granite 3.3", text="<think>a</think>b", thought="a", content="b"),
]
TABLE = Table(
    dialect="granite_v32",
    template=f"<|start_of_role|>Write your thoughts after '{START}', your response after '{END}'",
    write=write,
    rows=[*thoughts(START, END, write), *ROWS],
)
