"""The demo model answers in English, from small files, by a tokenizer that loses nothing."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from serve_app.demo.ask import MODEL, answer, load
from serve_app.demo.batches import IGNORED, batches
from serve_app.demo.corpus import Chat, Turn, chats
from serve_app.demo.vocabulary import TAGS, VOCABULARY, encoded

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


def as_messages(chat: Chat) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": turn.text} for turn in chat]


def rendered(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, object]]) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


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


def test_the_corpus_is_a_function_of_its_seed() -> None:
    assert list(islice(chats(7), 50)) == list(islice(chats(7), 50))
    assert list(islice(chats(7), 50)) != list(islice(chats(8), 50))


def test_every_chat_ends_with_the_assistant_and_has_no_empty_turn() -> None:
    for chat in islice(chats(3), 2000):
        assert chat[-1].role == "assistant"
        assert all(turn.text.strip() == turn.text != "" for turn in chat if turn.role != "user")


def test_training_ids_are_those_of_the_template(tokenizer: PreTrainedTokenizerFast) -> None:
    some = list(islice(chats(5), 100))
    for chat, (ids, _) in zip(some, encoded(tokenizer, some), strict=True):
        assert ids == tokenizer.encode(
            tokenizer.apply_chat_template(as_messages(chat), tokenize=False)
        )


def test_the_loss_looks_at_the_assistant_alone(tokenizer: PreTrainedTokenizerFast) -> None:
    chat = [Turn("user", "Hi"), Turn("assistant", "Hello!")]
    [(ids, mask)] = encoded(tokenizer, [chat])
    ours = [i for i, m in zip(ids, mask, strict=True) if m]
    assert tokenizer.decode(ours) == "Hello!<|im_end|>"


def test_a_resumed_run_sees_the_same_batches(tokenizer: PreTrainedTokenizerFast) -> None:
    whole = list(islice(batches(tokenizer, 1, 0, 1024), 4))
    rest = list(islice(batches(tokenizer, 1, 3, 1024), 1))
    assert rest[0].ids.equal(whole[3].ids)
    assert rest[0].targets.equal(whole[3].targets)
    assert (whole[0].targets != IGNORED).any()


def test_the_template_is_chatml(tokenizer: PreTrainedTokenizerFast) -> None:
    text = rendered(
        tokenizer,
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "Bye"},
        ],
    )
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n"
        "<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_template_renders_tool_calls_and_their_results(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    call = {"type": "function", "function": {"name": "clock", "arguments": {"zone": "UTC"}}}
    text = rendered(
        tokenizer,
        [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "12:00"},
        ],
    )
    assert (
        '<|im_start|>assistant\n<tool_call>\n{"name": "clock", "arguments": {"zone": "UTC"}}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n12:00\n</tool_response><|im_end|>\n"
    ) in text


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
