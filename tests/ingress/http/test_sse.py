"""ChunkEncoder that any line reader takes for one event, with JSON that says the same."""

import json

from hypothesis import given
from hypothesis import strategies as st

from deployments.ingress.http.sse import data, encode, encode_text


@given(st.text(st.characters(codec="utf-8")))
def test_text_is_one_line_for_every_reader(text: str) -> None:
    encoded = encode_text(text)
    assert json.loads(encoded) == text
    assert len(encoded.decode().splitlines()) == 1
    assert encode(text) == encoded


def test_json_is_compact_and_keeps_its_characters() -> None:
    assert encode({"a": [1, "\u65e5"]}) == '{"a":[1,"\u65e5"]}'.encode()


def test_a_frame_is_one_event() -> None:
    assert data(b"{}") == b"data: {}\n\n"
