"""A body is JSON whose every value can be worked with, or it is refused."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.http.body import DEPTH_LIMIT, parse_json
from deployments.ingress.http.json_body.weight import (
    LIST_WEIGHT,
    MAX_WEIGHT,
    NAME_WEIGHT,
    OBJECT_WEIGHT,
    check_weight,
)

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


def weight(value: object) -> int:
    """Weighs by the definition: every value counts, but for the first of a list or an object."""
    if isinstance(value, dict):
        names = NAME_WEIGHT * len(value) + max(len(value) - 1, 0)
        return OBJECT_WEIGHT + names + sum(map(weight, value.values()))
    if isinstance(value, list):
        return LIST_WEIGHT + max(len(value) - 1, 0) + sum(map(weight, value))
    return 0


@given(values, st.booleans(), st.integers(0, 60))
def test_a_body_is_refused_by_what_it_holds_and_not_by_what_its_strings_hold(
    value: object, ascii_only: bool, limit: int
) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    refusal = pytest.raises(Refused) if weight(value) > limit else contextlib.nullcontext()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deployments.ingress.http.json_body.weight.MAX_WEIGHT", limit)
        patch.setattr("deployments.ingress.http.json_body.weight.PIECE_BYTES", 5)
        with refusal:
            check_weight(body)


@pytest.mark.parametrize(
    ("item", "each"), [(b"1", 1), (b"[]", 1 + LIST_WEIGHT), (b"{}", 1 + OBJECT_WEIGHT)]
)
def test_of_many_values_none_is_made(item: bytes, each: int) -> None:
    n = (MAX_WEIGHT - LIST_WEIGHT) // each
    check_weight(b"[" + b",".join([item] * n) + b"]")
    with pytest.raises(Refused) as refusal:
        parse_json(b"[" + b",".join([item] * (n + 2)) + b"]")
    assert refusal.value.error.kind is ErrorKind.BODY_TOO_LARGE


def test_a_long_text_is_one_value_whatever_it_holds() -> None:
    text = 'say, "[{:\\' * (MAX_WEIGHT // 4)
    assert parse_json(json.dumps([text]).encode()) == [text]
