"""Metadata of tokenizers that a test trains itself."""

import io
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
TEXTS = (
    "The price of 1234567 apples wasn't $12.50, it'S 99%!\n\n  IT'S \tHe'll say: don't; WE'RE\r\n",
    "don't can't it's they're we've I'll I'm he'd DON'T IT'S THEY'RE WE'VE I'LL I'M 100 200",
    "def f(x):\n    return x**2 + 10\n\n\n        if x == 0:\n\t\treturn [None, 1000, 20000]\n",
    "日本語のテキスト、中文文本。한국어 텍스트! ひらがな カタカナ 日本語 中文 漢字123かな",
    "Ünïcödé naïve CamelCase camelCase HTTPServer iPhone İstanbul ΑΒΓαβγ Привет МИР привет",
    "e\u0301 o\u0308 n\u0303 हिन्दी नमस्ते ไทย ภาษาไทย العربية עברית 🤗🤗 👩‍👩‍👧 ½ ² Ⅷ ٣٤٥",
    "path/to/file.txt ... --- *** ((())) <tag> a_b-c+d=e a.b,c;d:e 3.14 1,000,000 2024-01\n \n \n",
)


def metadata(
    kind: str, tokens: Iterable[str], types: Iterable[int] | None = None, **fields: Any
) -> dict[str, Any]:
    """Fields are named without `tokenizer.ggml.`."""
    found: dict[str, Any] = {"model": kind, "tokens": list(tokens)}
    if types is not None:
        found["token_type"] = np.array(list(types), np.int32)
    found |= fields
    return {f"tokenizer.ggml.{name}": value for name, value in found.items()}


@cache
def _trained() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens and merges of byte-level BPE, which has merges across all kinds of characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.FixedLength(length=5),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    windows = [text[at:] for text in TEXTS for at in range(5)]
    tokenizer.train_from_iterator(windows, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tuple(tokens), tuple(" ".join(pair) for pair in model["merges"])


def byte_level(pre: str, special: Mapping[str, int] | None = None, **fields: Any) -> dict[str, Any]:
    """special: further tokens with their types."""
    tokens, merges = _trained()
    further = special or {}
    types = [NORMAL] * len(tokens) + list(further.values())
    adds = {"add_bos_token": False, "add_sep_token": False}
    given = {"pre": pre, "merges": list(merges), **adds, **fields}
    return metadata("gpt2", [*tokens, *further], types, **given)


def trained_pieces(model_type: str, **options: Any) -> Any:
    """Returns the message that SentencePiece writes when it has learnt TEXTS."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in TEXTS for line in text.split("\n") if line]),
        model_writer=written,
        model_type=model_type,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    message: Any = sentencepiece_model_pb2
    return message.ModelProto.FromString(written.getvalue())


def of_pieces(kind: str, proto: Any, **fields: Any) -> dict[str, Any]:
    """The metadata of a model of SentencePiece's."""
    normalizer = proto.normalizer_spec
    given: dict[str, Any] = {
        "scores": np.array([piece.score for piece in proto.pieces], np.float32),
        "add_space_prefix": normalizer.add_dummy_prefix,
        "remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
        "add_bos_token": False,
        "add_eos_token": False,
        "unknown_token_id": proto.trainer_spec.unk_id,
    }
    if normalizer.precompiled_charsmap:
        given["precompiled_charsmap"] = np.frombuffer(normalizer.precompiled_charsmap, np.uint8)
    types = [piece.type for piece in proto.pieces]
    return metadata(kind, [piece.piece for piece in proto.pieces], types, **(given | fields))
