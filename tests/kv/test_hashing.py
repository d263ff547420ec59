"""Page hashes name contents: a chain over parent, tokens and all else, without torch."""

import subprocess
import sys
from array import array

from hypothesis import assume, given
from hypothesis import strategies as st

from kv.content import DIGEST_BYTES, Adapter, Content, PlaceholderRange, page_hash, page_hashes

digests = st.binary(max_size=3)
paths = st.sampled_from(["one", "other"])  # not part of what an adapter is
adapters = st.lists(st.builds(Adapter, paths, digests, st.sampled_from([0.5, 1.0])), max_size=2)
tokens = st.lists(st.integers(0, 2**31), max_size=24)
page_sizes = st.integers(1, 5)


@given(tokens, page_sizes)
def test_only_full_pages_have_hashes(ids: list[int], page_size: int) -> None:
    assert len(page_hashes(ids, page_size)) == len(ids) // page_size


@given(tokens, tokens, page_sizes)
def test_a_longer_sequence_keeps_the_hashes_of_its_prefix(
    ids: list[int], more: list[int], page_size: int
) -> None:
    short, long = page_hashes(ids, page_size), page_hashes(ids + more, page_size)
    assert long[: len(short)] == short


@given(tokens, page_sizes, st.data())
def test_one_changed_token_changes_its_page_and_all_that_follow(
    ids: list[int], page_size: int, data: st.DataObject
) -> None:
    assume(len(ids) >= page_size)
    position = data.draw(st.integers(0, len(ids) // page_size * page_size - 1))
    changed = [*ids[:position], ids[position] + 1, *ids[position + 1 :]]
    before, after = page_hashes(ids, page_size), page_hashes(changed, page_size)
    first = position // page_size
    assert before[:first] == after[:first]
    assert not set(before[first:]) & set(after[first:])


@given(st.lists(st.integers(0, 9), min_size=2, max_size=2))
def test_equal_pages_behind_different_prefixes_differ(page: list[int]) -> None:
    assert page_hashes([1, 2, *page], 2)[1] != page_hashes([3, 4, *page], 2)[1]
    assert page_hashes([*page, *page], 2)[0] != page_hashes([*page, *page], 2)[1]


@given(tokens, page_sizes, st.text(min_size=1))
def test_a_salt_changes_every_hash(ids: list[int], page_size: int, salt: str) -> None:
    salted = page_hashes(ids, page_size, Content(salt))
    assert not set(page_hashes(ids, page_size)) & set(salted)


def test_no_salt_is_the_parent_that_a_page_is() -> None:
    parent, ids = b"p" * DIGEST_BYTES, b"i" * 8
    assert Content((parent + ids).decode()).root() != page_hash(parent, ids)


@given(st.text(max_size=3), st.text(max_size=3), adapters, adapters)
def test_only_equal_salts_and_adapters_have_one_root(
    salt: str, other: str, mine: list[Adapter], theirs: list[Adapter]
) -> None:
    first, second = Content(salt, tuple(mine)), Content(other, tuple(theirs))
    assert (first.root() == second.root()) == (first == second)


@given(st.integers(0, 11), st.integers(1, 12), st.integers(0, 3))
def test_a_medium_changes_the_pages_from_its_first_on(first: int, n: int, moved: int) -> None:
    ids, size = [7] * 16, 4
    plain = page_hashes(ids, size)
    content = Content(media=(PlaceholderRange(b"picture", first, first + n),))
    found = page_hashes(ids, size, content)
    assert [a == b for a, b in zip(plain, found, strict=True)] == [
        page < first // size for page in range(4)
    ]
    elsewhere = Content(media=(PlaceholderRange(b"picture", first + moved, first + n),))
    assert (page_hashes(ids, size, elsewhere) == found) == (moved == 0 or elsewhere == content)
    assert (
        page_hashes(ids, size, Content(media=(PlaceholderRange(b"other", first, first + n),)))
        != found
    )


@given(tokens, page_sizes, st.text())
def test_hashing_page_by_page_gives_the_same_as_at_once(
    ids: list[int], page_size: int, salt: str
) -> None:
    content = Content(salt, media=(PlaceholderRange(b"picture", 1, 7),))
    parent, hashes = content.root(), []
    for start in range(0, len(ids) - page_size + 1, page_size):
        page = array("q", ids[start : start + page_size])
        parent = page_hash(parent, page.tobytes(), content.extra(start, start + page_size))
        hashes.append(parent)
    assert hashes == page_hashes(ids, page_size, content)


def test_a_hash_is_the_same_in_every_process_and_has_128_bits() -> None:
    assert DIGEST_BYTES * 8 >= 128
    code = (
        "from kv.content import Content, page_hashes; "
        "print(page_hashes(range(4), 2, Content('s'))[1].hex())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == page_hashes(range(4), 2, Content("s"))[1].hex()


def test_hashing_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, kv.content; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
