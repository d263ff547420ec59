"""Any chunking of a text stops where a search over the whole of it stops."""

from hypothesis import given
from hypothesis import strategies as st

from deployments.text.stop_strings import StopMatcher

letters = st.text("ab", max_size=20)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


def searched(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The match that ends first, and of those the longest, found the slow way."""
    for end in range(1, len(text) + 1):
        for start in range(end):
            if text[start:end] in stops:
                return text[: end if include else start], text[start:end]
    return text, None


@given(chunks=st.lists(letters), stops=stop_lists, include=st.booleans())
def test_any_chunking_gives_what_a_search_gives(
    chunks: list[str], stops: list[str], include: bool
) -> None:
    matcher = StopMatcher(stops, include)
    given_out = "".join([*map(matcher.push, chunks), matcher.flush()])
    assert (given_out, matcher.matched) == searched("".join(chunks), stops, include)


@given(chunks=st.lists(letters), stops=stop_lists)
def test_nothing_is_held_back_that_could_not_begin_a_stop(
    chunks: list[str], stops: list[str]
) -> None:
    matcher, text, out = StopMatcher(stops), "", ""
    for chunk in chunks:
        text, out = text + chunk, out + matcher.push(chunk)
        if matcher.matched is not None:
            return
        held_back = text[len(out) :]
        assert text.startswith(out)
        assert not held_back or any(stop.startswith(held_back) for stop in stops)


def test_with_include_nothing_is_held_back() -> None:
    matcher = StopMatcher(["stop"], include=True)
    assert [matcher.push(part) for part in ("a st", "o", "p b")] == ["a st", "o", "p"]
    assert matcher.push("more") == matcher.flush() == ""
