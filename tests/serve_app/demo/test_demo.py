"""The shipped demo model answers in English, from small files; its tokenizer loses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from serve_app.demo.ask import answer
from serve_app.demo.evaluation.draft_agreement import agreement
from serve_app.demo.model_files import DRAFT, MODEL, load
from serve_app.demo.training.corpus import cases
from serve_app.demo.training.tokenizer import TAGS, VOCABULARY

Loaded = tuple[LlamaForCausalLM, PreTrainedTokenizerFast]

ANSWERS = [
    ("Hello", ("hello", "hi")),
    ("hi!", ("hello", "hi")),
    ("Who are you?", ("demo model",)),
    ("What is Manta?", ("Ray",)),
    ("How do I load another model?", ("PATH_OR_ID",)),
    ("What is the capital of France?", ("Paris",)),
    ("what is the capital of japan", ("Tokyo",)),
    ("what is 2+2", ("is 4",)),
    ("what is 7 + 5", ("is 12",)),
    ("What day comes after Friday?", ("Saturday",)),
    ("What day comes after Monday?", ("Tuesday",)),
    ("What is the opposite of hot?", ("cold",)),
    ("What colour is grass?", ("green",)),
    ("How many legs does a spider have?", ("eight",)),
    ("Count to 5.", ("1, 2, 3, 4, 5",)),
    ("Tell me a story about a fox named Ben.", ("Ben",)),
    ("What time is it?", ("do not know",)),
    ("Explain quantum physics.", ("tiny demo model",)),
    ("Thank you!", ("welcome", "pleasure")),
]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load()


@pytest.fixture(scope="module")
def tokenizer(loaded: Loaded) -> PreTrainedTokenizerFast:
    return loaded[1]


def test_the_files_are_small_and_complete() -> None:
    names = {file.name for file in MODEL.iterdir()}
    assert {"config.json", "generation_config.json", "tokenizer.json", "README.md"} <= names
    assert {"tokenizer_config.json", "chat_template.jinja"} <= names
    assert (MODEL / "model.safetensors").stat().st_size <= 12_000_000


def test_the_model_has_the_promised_shape(loaded: Loaded) -> None:
    model, tokenizer = loaded
    assert 5_000_000 <= model.num_parameters() <= 5_800_000
    assert model.config.vocab_size == len(tokenizer) == VOCABULARY
    assert tokenizer.eos_token_id in model.generation_config.eos_token_id
    assert tokenizer.convert_ids_to_tokens(tokenizer.eos_token_id) == "<|im_end|>"


@given(text=st.text())
def test_the_tokenizer_loses_no_text(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tags_are_single_tokens_that_decoding_keeps(tokenizer: PreTrainedTokenizerFast) -> None:
    for tag in TAGS:
        assert len(tokenizer.encode(tag)) == 1
        assert tokenizer.decode(tokenizer.encode(tag), skip_special_tokens=True) == tag


@pytest.mark.parametrize(("question", "words"), ANSWERS, ids=[q for q, _ in ANSWERS])
def test_the_answer_is_to_the_point(loaded: Loaded, question: str, words: tuple[str, ...]) -> None:
    said = answer(*loaded, [{"role": "user", "content": question}])
    assert any(word.lower() in said.lower() for word in words), said


def test_a_name_is_remembered_under_a_system_prompt(loaded: Loaded) -> None:
    chat = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "My name is Anna."},
        {"role": "assistant", "content": "Nice to meet you, Anna! What can I do for you?"},
        {"role": "user", "content": "What is my name?"},
    ]
    assert "Anna" in answer(*loaded, chat)


def test_answers_end_by_themselves(loaded: Loaded) -> None:
    for question in ("Tell me a story.", "Tell me a joke.", "What can you do?", "Write a poem."):
        said = answer(*loaded, [{"role": "user", "content": question}])
        assert 5 < len(loaded[1].encode(said)) < 200, said


def test_the_draft_is_small_and_speaks_the_models_tokens(loaded: Loaded) -> None:
    model, tokenizer = loaded
    draft, its = load(DRAFT)
    assert 900_000 <= draft.num_parameters() <= 1_100_000
    assert its.get_vocab() == tokenizer.get_vocab()
    assert (DRAFT / "model.safetensors").stat().st_size <= 2_200_000
    shipped = [*MODEL.iterdir(), *DRAFT.iterdir()]
    assert sum(file.stat().st_size for file in shipped) <= 16_000_000
    counts = [agreement(model, draft, tokenizer, case) for case in cases("small talk", 5)]
    agreed, said = (sum(column) for column in zip(*counts, strict=True))
    assert agreed > said / 2
