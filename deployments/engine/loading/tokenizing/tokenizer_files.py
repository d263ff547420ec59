"""Reads a model's tokenizer with its chat template, from any of the files that have one."""

from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, ProcessorMixin

from deployments.engine.loading.tokenizing.own_tokenizers import (
    has_own_tokenizer,
    is_misread,
    read_by_files,
)

DEFAULT = "default"  # the name of the template for any conversation
TEKKEN_MARK = "[INST]"  # in all vocabularies of Mistral


def read_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """Raises what transformers raises."""
    tokenizer = _tokenizer(path, fix_mistral_regex=True)
    # It is told of the tokenizer within.
    is_fixed = getattr(getattr(tokenizer, "_tokenizer", None), "fix_mistral_regex", False)
    if is_fixed and TEKKEN_MARK not in tokenizer.get_vocab():
        # Of a Mistral with another family's tokenizer, whose own expression is right.
        tokenizer = _tokenizer(path, fix_mistral_regex=False)
    own = tokenizer.chat_template or {}
    named = own if isinstance(own, dict) else {DEFAULT: own}
    if DEFAULT not in named:
        found = _processor_template(path) or {}
        of_processor = found if isinstance(found, dict) else {DEFAULT: found}
        tokenizer.chat_template = {**of_processor, **named} or None
    return tokenizer


def _tokenizer(path: str, *, fix_mistral_regex: bool) -> PreTrainedTokenizerBase:
    """Older files of Mistral's have an expression that cuts texts into other words than the model
    was trained with. Either value also brings a fast tokenizer where mistral-common is installed,
    which has none.
    """
    options = {"trust_remote_code": False, "fix_mistral_regex": fix_mistral_regex}
    if has_own_tokenizer(path):
        return read_by_files(path, **options)
    read: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, **options)
    return read_by_files(path, **options) if is_misread(read) else read


def _processor_template(path: str) -> Any:
    """The template of a processor: chat_template.json, or processor_config.json in older files."""
    fields, others = ProcessorMixin.get_processor_dict(path)
    found = fields.get("chat_template") or others.get("chat_template")
    return (
        {entry["name"]: entry["template"] for entry in found} if isinstance(found, list) else found
    )
