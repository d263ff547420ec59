"""A card carries the chat templates of its model, wherever they were saved."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from deployments.engine.model_card import chat_templates
from tests.checkpoints import CHAT_TEMPLATE, byte_tokenizer


@pytest.mark.parametrize(
    ("saved", "carried"),
    [
        ("a", ("a", None)),
        ({"default": "a", "tool_use": "b", "rag": "c"}, ("a", "b")),
        ({"rag": "c", "default": "a"}, ("a", None)),
        ({"tool_use": "b"}, ("b", "b")),
        ({"chat": "d"}, ("d", None)),
        (None, (None, None)),
    ],
)
def test_a_card_has_the_first_template_and_the_one_for_tools(
    saved: object, carried: tuple[str | None, str | None]
) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = saved
    assert chat_templates(tokenizer) == carried


def test_a_template_in_a_file_of_its_own_is_found(tmp_path: Path) -> None:
    byte_tokenizer().save_pretrained(tmp_path)
    more = tmp_path / "additional_chat_templates"
    more.mkdir()
    (more / "tool_use.jinja").write_text("b")
    assert chat_templates(AutoTokenizer.from_pretrained(tmp_path)) == (CHAT_TEMPLATE, "b")
