"""JSON parsed in pieces is what the parser of json makes of it, and wrong where that refuses."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.errors import Refused
from deployments.ingress.http.body import DECODER, LARGE_JSON
from deployments.ingress.http.json_body import pieces

SIZE = 12  # characters of a piece

numbers = st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.none())
values = st.recursive(
    numbers | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", SIZE)
        yield


def parsed(text: str, large: bool) -> tuple[str, object]:
    """The value, or why there is none. Where JSON ends depends on the version of Python."""
    try:
        return "value", repr((LARGE_JSON if large else DECODER).decode(text))
    except json.JSONDecodeError:
        return "no JSON", None
    except Refused as refusal:
        return "refused", refusal.error.message


@given(values, st.sampled_from([None, 0, 3]), st.data())
def test_it_is_parsed_as_json_does(value: object, indent: int | None, data: st.DataObject) -> None:
    text = json.dumps(value, indent=indent)
    assert parsed(text, large=True) == ("value", repr(value))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    put = data.draw(st.sampled_from(["", ",", "]", "[", '"', " ", "NaN", "1"]))
    wrong = text[:start] + put + text[end:]
    assert parsed(wrong, large=True) == parsed(wrong, large=False)


@pytest.mark.parametrize("wrong", ["1,,2", ",1", "1,", "1 2", "", "1e999", "- 1", "1]"])
@pytest.mark.parametrize("before", [0, 2 * SIZE])
def test_a_wrong_list_of_numbers_is_refused(wrong: str, before: int) -> None:
    text = f"[{'5,' * before}{wrong}{' ' * SIZE}{',7' * before}]"
    assert parsed(text, large=True) == parsed(text, large=False)
