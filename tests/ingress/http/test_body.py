"""A body is JSON whose every value can be worked with, or it is refused."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.ingress.http.body import DEPTH_LIMIT, parse_json
from deployments.wire import Refused

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


@given(values, st.booleans())
def test_what_is_json_comes_as_it_is(value: object, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary())
def test_any_bytes_are_a_value_or_a_refusal(body: bytes) -> None:
    with contextlib.suppress(Refused):
        parse_json(body)


def test_depth_is_limited_exactly() -> None:
    parse_json(b"[" * DEPTH_LIMIT + b"]" * DEPTH_LIMIT)
    with pytest.raises(Refused, match="deep"):
        parse_json(b"[" * (DEPTH_LIMIT + 1) + b"]" * (DEPTH_LIMIT + 1))


def test_breadth_is_not_depth() -> None:
    assert parse_json(b"[" + b"[]," * 1000 + b"{}]") == [[]] * 1000 + [{}]


@pytest.mark.parametrize("body", [rb'["\ud800"]', rb'{"a": {"\uDFFF": 1}}', rb'"\udc00\ud800"'])
def test_half_a_surrogate_pair_is_refused(body: bytes) -> None:
    with pytest.raises(Refused, match="surrogate"):
        parse_json(body)


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parse_json(rb'"\ud83d\ude42"') == "\U0001f642"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"a": 1, "b": 2, "a": 1}', "'a'"),
        (rb'[{"x": {"a": 1, "\u0061": 2}}]', "'a'"),
        (rb'{"\ud800": 1, "\ud800": 1}', r"'\ud800'"),
    ],
)
def test_a_name_twice_in_one_object_is_refused(body: bytes, name: str) -> None:
    with pytest.raises(Refused, match="more than once") as refusal:
        parse_json(body)
    assert name in str(refusal.value)
    str(refusal.value).encode()


@pytest.mark.parametrize("body", [b"[1e999]", b'{"a": -1e400}', b"9" * 400 + b".5"])
def test_a_number_beyond_the_finite_is_refused(body: bytes) -> None:
    with pytest.raises(Refused, match="too large"):
        parse_json(body)
