"""Broken metadata is refused with an error that names the key."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.tokenizing.gguf_tokenizer import read_gguf_tokenizer
from tests.engine.loading.gguf.tokenizing import made

WHOLE = made.byte_level(
    "llama-bpe",
    {"<s>": made.CONTROL},
    bos_token_id=0,
    scores=np.zeros(len(made.byte_level("gpt-2")["tokenizer.ggml.tokens"]) + 1, np.float32),
)
TOKENS = WHOLE["tokenizer.ggml.tokens"]
N_TOKENS = len(TOKENS)
TYPES = WHOLE["tokenizer.ggml.token_type"]
MISSING = object()
BROKEN: list[tuple[str, Any, str]] = [
    ("model", MISSING, "it is missing"),
    ("model", 7, "it is no text"),
    *(
        ("model", kind, f"tokenizers of kind '{kind}' are not supported")
        for kind in ("rwkv", "plamo2", "whitespace", "hybriddna", "none", "no_vocab", "", "GPT2")
    ),
    ("model", "x" * 1000, "tokenizers of kind '" + "x" * 80 + "' are"),
    ("pre", 7, "it is no text"),
    ("tokens", MISSING, "it is missing"),
    ("tokens", [], "it is empty"),
    ("tokens", "a", "it is no list of texts"),
    ("tokens", np.zeros(3), "it is no list of texts"),
    ("tokens", [1, "a"], "it is no list of texts"),
    ("tokens", ["a", "b", "a"], "'a' is there twice, as 0 and 2"),
    ("token_type", np.ones(N_TOKENS - 1, np.int32), f"has {N_TOKENS - 1} entries"),
    ("token_type", np.ones(N_TOKENS + 1, np.int32), f"has {N_TOKENS + 1} entries"),
    ("token_type", np.full(N_TOKENS, 7, np.int32), "no type of a token"),
    ("token_type", np.full(N_TOKENS, -1, np.int32), "no type of a token"),
    ("token_type", np.full(N_TOKENS, np.nan, np.float32), "no type of a token"),
    ("token_type", ["1"] * N_TOKENS, "it is no list of numbers"),
    ("token_type", 1, "it is no list of numbers"),
    ("scores", np.ones(3, np.float32), "it has 3 entries"),
    ("scores", np.full(N_TOKENS, np.nan, np.float32), "no finite number"),
    ("scores", np.full(N_TOKENS, np.inf, np.float32), "no finite number"),
    ("scores", np.ones(N_TOKENS, bool), "it is no list of numbers"),
    ("merges", MISSING, "it is missing"),
    ("merges", np.zeros(3), "it is no list of texts"),
    ("merges", ["ab"], "merge 0 is 'ab', and no pair of tokens"),
    ("merges", ["a b", ""], "merge 0, 'a b': 'ab' is no token"),
    ("merges", [*WHOLE["tokenizer.ggml.merges"][:1], ""], "merge 1 is '', and no pair"),
    ("merges", ["a "], "merge 0 is 'a ', and no pair"),
    ("merges", [" a"], "merge 0 is ' a', and no pair"),
    ("merges", ["\u4e00 a"], "'\u4e00' is no token"),
    ("merges", ["a \u4e00"], "'\u4e00' is no token"),
    *(
        (f"{name}_token_id", value, message)
        for name in ("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "cls")
        for value, message in (
            (N_TOKENS, f"it is {N_TOKENS}, and there are {N_TOKENS} tokens"),
            (0xFFFFFFFF, "it is 4294967295, and there are"),
            (-1, "it is -1, and there are"),
            ("a", "it is no whole number"),
            (1.0, "it is no whole number"),
            (True, "it is no whole number"),
        )
    ),
    ("add_bos_token", 1, "it is neither true nor false"),
    ("add_eos_token", "true", "it is neither true nor false"),
    ("add_sep_token", 0, "it is neither true nor false"),
    ("fim_pad_token_id", N_TOKENS, "there are"),
]


@pytest.mark.parametrize(("name", "value", "message"), BROKEN)
def test_broken_metadata_is_refused(name: str, value: Any, message: str) -> None:
    key = f"tokenizer.ggml.{name}"
    metadata = WHOLE | {key: value}
    if value is MISSING:
        del metadata[key]
    with pytest.raises(GGUFError) as error:
        read_gguf_tokenizer(metadata)
    assert f"key '{key}': " in str(error.value)
    assert message in str(error.value)
    assert len(str(error.value)) < 300


def test_the_metadata_is_whole_otherwise() -> None:
    assert read_gguf_tokenizer(WHOLE).tokenizer.get_vocab_size() == N_TOKENS


def test_empty_tokens_are_never_found() -> None:
    metadata = WHOLE | {
        "tokenizer.ggml.tokens": ["" if token == "<s>" else token for token in TOKENS]
    }
    tokenizer = read_gguf_tokenizer(metadata).tokenizer
    assert tokenizer.get_vocab_size() == N_TOKENS
    assert N_TOKENS - 1 not in tokenizer.encode("<s> a").ids


def test_a_merge_that_is_there_twice_counts_where_it_is_first() -> None:
    merges = WHOLE["tokenizer.ggml.merges"]
    twice = read_gguf_tokenizer(WHOLE | {"tokenizer.ggml.merges": [*merges, *merges[::-1]]})
    plain = read_gguf_tokenizer(WHOLE)
    for text in made.TEXTS:
        assert twice.tokenizer.encode(text).ids == plain.tokenizer.encode(text).ids


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 40), st.floats(), st.text(max_size=4),
    st.lists(st.text("ab \u2581[]<>#", max_size=4), max_size=8),
    st.lists(st.integers(0, 7), max_size=8).map(lambda found: np.array(found, np.int32)),
    st.lists(st.floats(width=32), max_size=8).map(lambda found: np.array(found, np.float32)),
    st.binary(max_size=40).map(lambda found: np.frombuffer(found, np.uint8)),
)  # fmt: skip
NAMES = ("pre", "tokens", "token_type", "scores", "merges", "bos_token_id", "eos_token_id",
         "unknown_token_id", "add_bos_token", "add_space_prefix", "precompiled_charsmap",
         "remove_extra_whitespaces", "seperator_token_id", "normalizer.lowercase")  # fmt: skip


@given(
    kind=st.sampled_from(["gpt2", "llama", "t5", "bert", "gemma4"]),
    tokens=st.lists(st.text("ab \u2581[]<>#\u0120", max_size=3), min_size=1, max_size=8),
    fields=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5),
    text=st.text("ab \u2581[]<>#", max_size=20),
)
def test_whatever_a_file_holds_it_is_read_or_refused(
    kind: str, tokens: list[str], fields: dict[str, Any], text: str
) -> None:
    ids = {"bos_token_id": 0, "unknown_token_id": 0, "seperator_token_id": 0, "eos_token_id": 0}
    whole = {"pre": "gpt-2", "merges": [], "scores": np.zeros(len(tokens)), **ids}
    metadata = made.metadata(kind, tokens, None, **whole)
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in fields.items()}
    try:
        read = read_gguf_tokenizer(metadata)
    except GGUFError:
        return
    n_tokens = len(metadata["tokenizer.ggml.tokens"])
    encoded = read.tokenizer.encode(text)
    assert all(0 <= token_id < n_tokens for token_id in encoded.ids)
    read.tokenizer.decode(encoded.ids)
    read.tokenizer.to_str()
