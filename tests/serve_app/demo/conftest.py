"""Fixtures of the demo's tests: a tokenizer made from a little of the corpus."""

import pytest
from transformers import PreTrainedTokenizerFast

from serve_app.demo.training.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def small_tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(0, chat_count=3000)
