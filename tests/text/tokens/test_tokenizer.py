"""Ids stand for exact bytes, and a template's refusal is the caller's."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLTokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models

from deployments.contract.errors import ErrorKind, Refused
from deployments.text.tokens.tokenizer import TextTokenizer, TokenizerCache
from tests.text.cards import SPECIALS, byte_level, card, metaspace, token_id

BYTES = TextTokenizer(card())
SPACED = TextTokenizer(card(metaspace()))


@pytest.mark.parametrize("tokenizer", [BYTES, SPACED])
@given(text=st.text())
def test_text_survives_the_way_to_ids_and_back(tokenizer: TextTokenizer, text: str) -> None:
    if "\u2581" in text and tokenizer is SPACED:
        return  # this alphabet's word for a space
    if any(special in text for special in (*SPECIALS, "<unk>", "<s>", "</s>")):
        return
    assert tokenizer.decode(tokenizer.encode(text, False)) == text


@pytest.mark.parametrize("trained", [byte_level(), metaspace()])
@given(text=st.text())
def test_valid_text_decodes_as_the_library_decodes_it(trained: Tokenizer, text: str) -> None:
    tokenizer = TextTokenizer(card(trained))
    ids = tokenizer.encode(text, False)
    assert tokenizer.decode(ids) == trained.decode(ids, skip_special_tokens=True)
    assert tokenizer.decode(ids, False) == trained.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("tokenizer", [BYTES, SPACED])
def test_what_is_far_too_long_has_its_length_still(tokenizer: TextTokenizer) -> None:
    text = "So long a text, and no end of it. " * 20_000
    whole = tokenizer.encode(text, False)
    assert abs(len(tokenizer.encode(text, False, limit=1000)) - len(whole)) < 10
    assert tokenizer.encode(text, False, limit=len(whole)) == whole
    assert tokenizer.encode_literally(text, False, limit=len(whole)) == whole
    assert abs(len(tokenizer.encode_literally(text, False, limit=1000)) - len(whole)) < 10


def test_token_bytes_are_exact() -> None:
    euro = BYTES.encode("\u20ac", False)
    assert b"".join(map(BYTES.token_bytes, euro)) == "\u20ac".encode()
    assert len(euro) > 1
    assert SPACED.token_bytes(token_id(metaspace(), "<0xAB>")) == b"\xab"
    assert SPACED.token_bytes(token_id(metaspace(), "\u2581")) == b" "
    assert BYTES.token_bytes(token_id(byte_level(), "<|im_end|>")) == b"<|im_end|>"
    assert BYTES.token_bytes(10**6) == b""


def test_every_byte_has_a_token() -> None:
    assert {BYTES.token_bytes(i) for i in range(BYTES._tokenizer.get_vocab_size())} >= {
        bytes([byte]) for byte in range(256)
    }


def test_words_without_a_decoder_are_joined_by_spaces() -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    assert TextTokenizer(card(words)).decode([0, 1, 0]) == words.decode([0, 1, 0]) == "a b a"


def test_metaspace_decoder() -> None:
    pieces = Tokenizer(models.WordLevel({"\u2581a": 0, "b": 1, "?": 2}, unk_token="?"))
    pieces.decoder = decoders.Metaspace()
    assert TextTokenizer(card(pieces)).decode([0, 1, 0]) == pieces.decode([0, 1, 0]) == "ab a"


def test_word_pieces_are_joined_to_words() -> None:
    pieces = Tokenizer(models.WordLevel({"a": 0, "##b": 1, "?": 2}, unk_token="?"))
    pieces.decoder = decoders.WordPiece()
    assert TextTokenizer(card(pieces)).decode([0, 1, 0]) == pieces.decode([0, 1, 0]) == "ab a"


def test_an_unknown_decoder_is_refused_at_once() -> None:
    pieces = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    pieces.decoder = decoders.CTC()
    with pytest.raises(ValueError, match="CTC"):
        TextTokenizer(card(pieces))


def test_truncation_and_padding_of_the_file_are_ignored() -> None:
    trained = Tokenizer.from_str(byte_level().to_str())
    trained.enable_truncation(2)
    trained.enable_padding(length=50)
    text = "a b c d e f"
    assert TextTokenizer(card(trained)).encode(text, False) == BYTES.encode(text, False)


def test_chat_is_rendered_with_the_template() -> None:
    prompt = BYTES.render_chat([{"role": "user", "content": "hi"}])
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert BYTES.encode(prompt, False)[0] == byte_level().token_to_id("<|im_start|>")


def test_the_final_message_can_be_continued() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well,"}]
    prompt = BYTES.render_chat(messages, add_generation_prompt=False, continue_final_message=True)
    assert prompt.endswith("<|im_start|>assistant\nWell,")


@pytest.mark.parametrize(
    ("tokenizer", "role", "words"),
    [
        (BYTES, "alien", "no role alien"),
        (TextTokenizer(card(chat_template=None)), "user", "no chat template"),
        (TextTokenizer(card(chat_template="{{ nothing.more.here }}")), "user", "undefined"),
        (TextTokenizer(card(chat_template="{% for")), "user", "template"),
        (TextTokenizer(card(chat_template="{{ 1 // 0 }}")), "user", "template"),
    ],
)
def test_what_a_template_will_not_have_is_refused(
    tokenizer: TextTokenizer, role: str, words: str
) -> None:
    with pytest.raises(Refused, match=words) as refusal:
        tokenizer.render_chat([{"role": role, "content": "x"}])
    assert refusal.value.error.kind is ErrorKind.INVALID_REQUEST
    assert refusal.value.error.param == "messages"


def test_what_a_template_lacks_is_told_without_words_of_python() -> None:
    for template, words in (
        ("{{ messages[0].more.here }}", "an object has no field 'more'"),
        ("{{ 1 + '' }}", "refuses them"),
    ):
        with pytest.raises(Refused) as refusal:
            TextTokenizer(card(chat_template=template)).render_chat([{"role": "user"}])
        assert refusal.value.error.message.startswith("`messages`: ")
        assert words in refusal.value.error.message
        assert not re.search(r"\b(dict|str|int|NoneType)\b", refusal.value.error.message)


@pytest.mark.parametrize("name", ["chat_template", "messages", "tools", "eos_token", "self"])
def test_template_arguments_cannot_replace_the_servers_own(name: str) -> None:
    with pytest.raises(Refused) as refusal:
        BYTES.render_chat([], template_kwargs={name: "x"})
    assert refusal.value.error.param == f"chat_template_kwargs.{name}"


def test_the_cache_builds_once_and_is_bounded() -> None:
    cards = [card(chat_template=str(number)) for number in range(3)]
    cache = TokenizerCache(capacity=2 * len(cards[0].tokenizer_json))
    first = cache.get(cards[0])
    assert cache.get(card(chat_template="0", name="another")) is first
    for entry in cards:
        cache.get(entry)
    assert [cache.is_built(entry) for entry in cards] == [False, True, True]


class Slow(tuple[tuple[str, str], ...]):
    """Special tokens that are read when the test lets them be."""

    begun = threading.Event()
    gate = threading.Event()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.begun.set()
        assert self.gate.wait(60)
        return super().__iter__()


def test_who_wants_another_tokenizer_does_not_wait_for_one_that_is_built() -> None:
    cache, slow = TokenizerCache(), replace(card(chat_template=None), special_tokens=Slow())
    with ThreadPoolExecutor() as pool:
        building = [pool.submit(cache.get, slow) for _ in range(2)]
        assert Slow.begun.wait(60)
        try:
            assert pool.submit(cache.get, card()).result(60) is cache.get(card())
            assert not cache.is_built(slow)
        finally:
            Slow.gate.set()
        assert building[0].result() is building[1].result() is cache.get(slow)


def test_a_tokenizer_that_could_not_be_built_is_tried_again() -> None:
    cache, broken = TokenizerCache(), replace(card(), tokenizer_json="{}")
    for _ in range(2):
        with pytest.raises(Exception, match="Model missing"):
            cache.get(broken)
        assert not cache.is_built(broken)


def test_text_imports_neither_torch_nor_servers() -> None:
    code = (
        "import sys, deployments.text.stream; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'ray', 'pydantic', 'starlette')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_others_go_on_while_a_long_text_is_encoded() -> None:
    turns = 0

    def encoded() -> int:
        """How often the loop turned meanwhile."""
        before = turns
        BYTES.encode("Hello world " * 100_000, False)
        return turns - before

    async def ask() -> int:
        nonlocal turns
        working = asyncio.create_task(asyncio.to_thread(encoded))
        while not working.done():
            turns += 1
            await asyncio.sleep(0)
        return await working

    switching = sys.getswitchinterval()
    sys.setswitchinterval(60)  # so that only who lets go of the interpreter lets others run
    try:
        assert asyncio.run(ask()) > 10
    finally:
        sys.setswitchinterval(switching)


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize(
    "mark", ["<tool_call>", "<|b|>", "[TOOL_CALLS]", "word", "<\uff5ctool\u2581call\uff5c>"]
)
def test_marks_are_what_llguidance_takes_for_no_text(mark: str, special: bool) -> None:
    trained = Tokenizer.from_str(byte_level().to_str())
    trained.add_tokens([AddedToken(mark, special=special, normalized=False)])
    mark_id, end = token_id(trained, mark), token_id(trained, "<|im_end|>")
    known = LLTokenizer(trained.to_str(), eos_token=end).is_special_token(mark_id)
    assert TextTokenizer(card(trained)).mark_id(mark) == (mark_id if known else None)
