"""A card carries what the files of its model say: templates, values for sampling, ends."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, GenerationConfig

from deployments.contract.requests import SamplingParams
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.model_card import chat_templates, default_sampling, end_token_ids
from tests.checkpoints import CHAT_TEMPLATE, byte_tokenizer
from tests.models import VOCAB, tiny_model


@pytest.mark.parametrize(
    ("saved", "carried"),
    [
        ("a", ("a", None)),
        ({"default": "a", "tool_use": "b", "rag": "c"}, ("a", "b")),
        ({"rag": "c", "default": "a"}, ("a", None)),
        ({"tool_use": "b"}, ("b", "b")),
        ({"chat": "d"}, ("d", None)),
        (None, (None, None)),
        ("", (None, None)),
        ("\ufeffa", ("a", None)),
    ],
)
def test_a_card_has_the_first_template_and_the_one_for_tools(
    saved: object, carried: tuple[str | None, str | None]
) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = saved
    assert chat_templates(tokenizer) == carried


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        (5, "is 5, and no text"),
        ({"default": ["a"]}, r"is \['a'\], and no text"),
        ("a\n{% if x %}", "has a syntax error in line 2: Unexpected end of template"),
        ({"default": "a", "tool_use": "{% nothing %}"}, "in line 1: .* unknown tag 'nothing'"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused(saved: object, said: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = saved
    with pytest.raises(UnsupportedModelError, match=f"chat_template of its files .*{said}"):
        chat_templates(tokenizer)


def test_a_template_in_a_file_of_its_own_is_found(tmp_path: Path) -> None:
    byte_tokenizer().save_pretrained(tmp_path)
    more = tmp_path / "additional_chat_templates"
    more.mkdir()
    (more / "tool_use.jinja").write_text("b")
    assert chat_templates(AutoTokenizer.from_pretrained(tmp_path)) == (CHAT_TEMPLATE, "b")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, SamplingParams()),
        ({"top_p": 0}, SamplingParams(top_p=0)),  # the most likely token alone
        (
            {"top_p": 0.9, "top_k": 20, "temperature": 0},
            SamplingParams(temperature=0, top_k=20, top_p=0.9),
        ),
        ({"top_k": -1, "min_p": 0.1}, SamplingParams(min_p=0.1)),
        ({"top_k": 40.0}, SamplingParams(top_k=40)),
    ],
)
def test_values_that_files_suggest_are_taken(
    fields: dict[str, float], expected: SamplingParams
) -> None:
    assert default_sampling(GenerationConfig(**fields)) == expected


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"top_p": 1.5}, r"top_p .* is 1\.5: top_p must be in 0\.\.1"),
        ({"temperature": -1}, "temperature .* is -1: temperature must not be negative"),
        ({"repetition_penalty": 0}, "repetition_penalty .* is 0: .* must be above 0"),
        ({"min_p": float("nan")}, "min_p .* is nan"),
        ({"top_k": 1.5}, r"top_k .* is 1\.5, and no whole number"),
        ({"top_k": -2}, "top_k .* is -2, and no whole number"),
        ({"top_p": "0.9"}, r"top_p .* is '0\.9', and no number"),
        ({"temperature": True}, "temperature .* is True, and no number"),
    ],
)
def test_values_that_no_request_may_have_are_refused_by_name(
    fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        default_sampling(GenerationConfig(**fields))


@pytest.mark.parametrize(
    ("named", "ids"), [("2", {2}), ([2, "3"], {2, 3}), ([2, -1, VOCAB], {2}), (None, set())]
)
def test_ends_of_a_sequence_are_tokens_of_the_vocabulary(named: object, ids: set[int]) -> None:
    model, tokenizer = tiny_model(), byte_tokenizer()
    assert model.generation_config is not None
    model.generation_config.eos_token_id = named
    tokenizer.eos_token = None
    assert end_token_ids(model, tokenizer) == ids
    model.generation_config.eos_token_id = "</s>"
    with pytest.raises(UnsupportedModelError, match="eos_token_id of its files is '</s>'"):
        end_token_ids(model, tokenizer)
