"""Reads tokenizers by the settings in their own files: those whose class is code of a model's own,
and vocabularies of sentencepiece that transformers, going by the type of the model, reads as
byte-level BPE. Words run together then."""

from collections.abc import Mapping
from typing import Any

import transformers
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer, decoders
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import cached_file

from deployments.engine.errors import UnsupportedModelError

TOKENIZER_FILE, PIECES_FILE = "tokenizer.json", "tokenizer.model"
WORD_MARK = "\N{LOWER ONE EIGHTH BLOCK}"  # a piece of sentencepiece, and no byte-level token
# Classes of models' own code that do what sentencepiece does, and begin texts with a token.
PLAIN_CLASSES = frozenset({"InternLM2Tokenizer", "InternLM3Tokenizer"})
BEGINS_TEXTS = "add_bos_token"
TRIED = "Two words, and\n\n 3  more "  # readings differ in what they make of spaces


def has_own_tokenizer(path: str) -> bool:
    """Whether a tokenizer's class is code of the model's own, which is not needed to read it.
    Raises UnsupportedModelError where it is."""
    fields = get_tokenizer_config(path)
    name = fields.get("tokenizer_class")
    if name in PLAIN_CLASSES and _find(path, PIECES_FILE) is not None:
        return True
    if "auto_map" not in fields or name is None or hasattr(transformers, str(name)):
        return False
    if _find(path, TOKENIZER_FILE) is None:
        raise UnsupportedModelError(
            f"its tokenizer {name} comes with code of its own, which is never run: "
            f"it needs a {TOKENIZER_FILE}"
        )
    return True


def is_misread(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether it takes tokens for bytes that are in fact pieces of sentencepiece."""
    if not tokenizer.is_fast:
        return False
    backend: Tokenizer = tokenizer.backend_tokenizer
    has_pieces = backend.token_to_id(WORD_MARK) is not None
    return has_pieces and isinstance(backend.decoder, decoders.ByteLevel)


def read_by_files(path: str, **options: Any) -> PreTrainedTokenizerBase:
    """Reads a tokenizer.json, or else what sentencepiece wrote. `options` are of transformers.

    Raises UnsupportedModelError where the installed transformers reads the latter otherwise than
    sentencepiece does, besides what transformers raises.
    """
    pieces = _find(path, PIECES_FILE) if _find(path, TOKENIZER_FILE) is None else None
    fields = get_tokenizer_config(path)
    if pieces is not None and fields.get("tokenizer_class") in PLAIN_CLASSES:
        options[BEGINS_TEXTS] = fields.get(BEGINS_TEXTS, True)
    read: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(path, **options)
    if pieces is not None and not (_has_ids(read, fields) and _reads_as(read, pieces)):
        raise UnsupportedModelError(
            f"transformers {transformers.__version__} reads its {PIECES_FILE} otherwise than "
            f"sentencepiece: it needs a {TOKENIZER_FILE}"
        )
    return read


def _has_ids(tokenizer: PreTrainedTokenizerBase, fields: Mapping[str, Any]) -> bool:
    """Whether added tokens have the ids that the files say, which may be those of unused pieces."""
    added: Mapping[str, Any] = fields.get("added_tokens_decoder") or {}
    vocabulary = tokenizer.get_vocab()
    return all(vocabulary.get(token["content"]) == int(at) for at, token in added.items())


def _reads_as(tokenizer: PreTrainedTokenizerBase, file: str) -> bool:
    pieces = SentencePieceProcessor(model_file=file)
    expected: list[int] = pieces.encode(TRIED)
    found: list[int] = tokenizer.encode(TRIED, add_special_tokens=False)
    known = [at for at in expected if at != pieces.unk_id()]  # for others each has its own sign
    decoded: str = tokenizer.decode(known)
    return found == expected and decoded == pieces.decode(known)


def _find(path: str, name: str) -> str | None:
    """A file's path on the disk. None: the directory or hub id has none of this name."""
    found: str | None = cached_file(path, name, _raise_exceptions_for_missing_entries=False)
    return found
