"""Transcripts of models that learn the form from their prompt."""

from tests.text.dialects.tables.hermes import ROWS, write
from tests.text.dialects.transcripts import Table, Transcript, thoughts

BARE = [
    Transcript(
        label="the JSON alone",
        text='{"name": "get_weather", "arguments": {"city": "a"}}',
        calls=(("get_weather", '{"city": "a"}'),),
    ),
    Transcript(label="other JSON", text='{"city": "a"}', content='{"city": "a"}'),
    Transcript(label="a list", text='["name"]', content='["name"]'),
]

TABLE = Table(
    dialect="generic",
    template="{% for m in messages %}<|im_start|>{{ m.role }}\n<think>{{ m.content }}{% endfor %}",
    write=write,
    rows=[*thoughts("<think>", "</think>", write), *ROWS, *BARE],
)
