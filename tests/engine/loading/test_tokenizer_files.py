"""A tokenizer cuts texts as its model was trained, and has the template of any of its files."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from packaging.version import Version
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.loader import load_tokenizer
from deployments.engine.loading.tokenizing import own_tokenizers
from deployments.engine.model_card import chat_templates
from tests.checkpoints import byte_tokenizer, save_checkpoint

# As Llama 3's, which older files of Mistral's have in the place of their own.
WRONG = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
RIGHT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LARGE = 100_100  # of Mistral's tokenizers only large ones are wrong
MERGES = [("2", "0"), ("20", "2"), ("h", "e"), ("T", "he")]


def folder(path: Path, *marks: str, model_type: str = "mistral") -> Path:
    """The tokenizer's files, and a config that an old transformers wrote."""
    vocabulary = {char: at for at, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {"".join(pair): len(vocabulary) + at for at, pair in enumerate(MERGES)}
    vocabulary |= {f"{at}th": at for at in range(len(vocabulary), LARGE)}
    made = Tokenizer(models.BPE(vocabulary, MERGES))
    split = pre_tokenizers.Split(Regex(WRONG), "isolated")
    rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, rest])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>", *marks])
    made.save(str(path / "tokenizer.json"))
    named = {"model_type": model_type, "transformers_version": "4.50.0"}
    (path / "config.json").write_text(json.dumps(named))
    return path


def pieces(path: Path, text: str = "The 2024") -> list[str]:
    tokenizer = load_tokenizer(str(path))
    found: list[str] = tokenizer.convert_ids_to_tokens(
        tokenizer.encode(text, add_special_tokens=False)
    )
    return found


@pytest.mark.parametrize(
    ("marks", "model_type", "number"),
    [
        (["[INST]"], "mistral", ["2", "0", "2", "4"]),
        (["[INST]"], "llama", ["202", "4"]),
        (["<|eot_id|>"], "mistral", ["202", "4"]),
    ],
)
def test_mistrals_files_with_a_wrong_expression_are_read_with_the_right_one(
    tmp_path: Path, marks: list[str], model_type: str, number: list[str]
) -> None:
    assert pieces(folder(tmp_path, *marks, model_type=model_type)) == ["The", "Ġ", *number]


def tekken(path: Path) -> None:
    tokens = [bytes([byte]) for byte in range(256)] + [b"he", b"The", b"20"]
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    config = {
        "pattern": RIGHT,
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": len(tokens) + len(specials),
        "default_num_special_tokens": len(specials),
        "version": "v7",
    }
    vocabulary = [
        {"rank": at, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for at, token in enumerate(tokens)
    ]
    named = [
        {"rank": at, "token_str": special, "is_control": True}
        for at, special in enumerate(specials)
    ]
    written = {"config": config, "vocab": vocabulary, "special_tokens": named}
    (path / "tekken.json").write_text(json.dumps(written))


def test_tekken_alone_is_read_with_mistral_common_and_without(tmp_path: Path) -> None:
    tekken(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mistral"}')
    assert load_tokenizer(str(tmp_path)).is_fast
    assert pieces(tmp_path) == ["The", "Ġ", "2", "0", "2", "4"]


def test_tokenizer_json_is_read_beside_tekken(tmp_path: Path) -> None:
    tekken(folder(tmp_path, "[INST]"))
    assert pieces(tmp_path) == ["The", "Ġ", "2", "0", "2", "4"]


TEMPLATES = {
    "chat_template.jinja": "one",
    "chat_template.json": '{"chat_template": "one"}',
    "processor_config.json": '{"processor_class": "LlavaProcessor", "chat_template": "one"}',
    "tokenizer_config.json": '{"chat_template": "one"}',
}


@pytest.mark.parametrize("file", TEMPLATES)
def test_a_template_is_found_in_whichever_file_it_is(tmp_path: Path, file: str) -> None:
    written = save_checkpoint(tmp_path)
    (written / "chat_template.jinja").unlink(missing_ok=True)
    (written / file).write_text(TEMPLATES[file])
    assert chat_templates(load_tokenizer(str(written))) == ("one", None)


NAMED = '[{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]'


def test_a_template_for_tools_is_found_by_its_name(tmp_path: Path) -> None:
    written = save_checkpoint(tmp_path)
    (written / "chat_template.jinja").write_text("one")
    (written / "additional_chat_templates").mkdir()
    (written / "additional_chat_templates" / "tool_use.jinja").write_text("two")
    assert chat_templates(load_tokenizer(str(written))) == ("one", "two")
    (written / "chat_template.jinja").unlink()
    (written / "additional_chat_templates" / "tool_use.jinja").unlink()
    (written / "tokenizer_config.json").write_text(f'{{"chat_template": {NAMED}}}')
    assert chat_templates(load_tokenizer(str(written))) == ("one", "two")
    (written / "tokenizer_config.json").write_text("{}")
    (written / "chat_template.json").write_text(f'{{"chat_template": {NAMED}}}')
    assert chat_templates(load_tokenizer(str(written))) == ("one", "two")


@pytest.mark.parametrize("file", ["chat_template.json", "processor_config.json"])
def test_a_template_for_tools_alone_leaves_others_to_that_of_the_processor(
    tmp_path: Path, file: str
) -> None:
    written = save_checkpoint(tmp_path)
    (written / "chat_template.jinja").unlink()
    (written / "tokenizer_config.json").write_text(
        '{"chat_template": [{"name": "tool_use", "template": "two"}]}'
    )
    (written / file).write_text(TEMPLATES[file])
    assert chat_templates(load_tokenizer(str(written))) == ("one", "two")


def test_an_empty_template_is_none(tmp_path: Path) -> None:
    written = save_checkpoint(tmp_path)
    (written / "chat_template.jinja").write_text("")
    assert chat_templates(load_tokenizer(str(written))) == (None, None)
    (written / "chat_template.json").write_text('{"chat_template": "one"}')
    assert chat_templates(load_tokenizer(str(written))) == ("one", None)


TEXTS = ("the lazy dog jumps", " the  fox\n\n 12\tover ", "caf\u00e9 \u4e2d\u6587 \U0001f600")
MARKS = ("[UNUSED_TOKEN_0]", "[UNUSED_TOKEN_1]")


def sentencepieces(path: Path, served_as: str, **options: Any) -> SentencePieceProcessor:
    """A folder with what sentencepiece writes beside a config of that type. Returns its own."""
    text = [f"the quick brown fox {n} jumps over the lazy dog" for n in range(200)]
    settings: dict[str, Any] = {
        "model_type": "bpe",
        "byte_fallback": True,
        "vocab_size": 310,
    } | options
    with (path / "tokenizer.model").open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=file,
            user_defined_symbols=[*MARKS],
            minloglevel=2,
            **settings,
        )
    (path / "config.json").write_text(json.dumps({"model_type": served_as}))
    return SentencePieceProcessor(model_file=str(path / "tokenizer.model"))


def check_same(path: Path, pieces: SentencePieceProcessor) -> None:
    tokenizer = load_tokenizer(str(path))
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == pieces.encode(text)
        if pieces.unk_id() not in ids:
            assert tokenizer.decode(ids) == pieces.decode(ids)


PIECES: tuple[dict[str, Any], ...] = (
    {},
    {"model_type": "unigram"},
    {"add_dummy_prefix": False},
    {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
    {"byte_fallback": False, "vocab_size": 60},
)

# Older ones leave out the space before a text, and are refused by name.
reads_pieces = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.24"), reason="needs a newer transformers"
)


@reads_pieces
@pytest.mark.parametrize("options", PIECES)
@pytest.mark.parametrize("served_as", ["qwen2", "cohere"])
def test_pieces_of_a_type_whose_tokenizers_are_of_bytes_keep_their_spaces(
    tmp_path: Path, served_as: str, options: dict[str, Any]
) -> None:
    check_same(tmp_path, sentencepieces(tmp_path, served_as, **options))


@reads_pieces
def test_a_tokenizer_json_of_pieces_keeps_its_spaces(tmp_path: Path) -> None:
    pieces = sentencepieces(tmp_path, "llama")
    load_tokenizer(str(tmp_path)).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.model").unlink()
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    check_same(tmp_path, pieces)


def test_tokens_of_bytes_may_have_marks_of_words_within(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<begin\u2581of\u2581sentence>"], special_tokens=True)
    assert not own_tokenizers.is_misread(tokenizer)


def internlm_files(path: Path, pieces: SentencePieceProcessor, **fields: Any) -> None:
    """Writes files like InternLM2's, which give marks of chats to pieces that stand unused."""
    names = {0: "<unk>", 1: "<s>", 2: "</s>"} | {
        pieces.piece_to_id(unused): mark
        for unused, mark in zip(MARKS, ("<|im_start|>", "<|im_end|>"), strict=True)
    }
    kind = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    written = {
        "tokenizer_class": "InternLM2Tokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_internlm2.InternLM2Tokenizer", None]},
        "added_tokens_decoder": {
            str(at): {"content": name, "special": True, **kind} for at, name in names.items()
        },
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(written | fields))


@reads_pieces
@pytest.mark.parametrize("options", [made for made in PIECES if "model_type" not in made])
def test_pieces_of_internlm_are_read_without_its_code(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    pieces = sentencepieces(tmp_path, "internlm2", **options)
    internlm_files(tmp_path, pieces)
    check_same(tmp_path, pieces)
    tokenizer = load_tokenizer(str(tmp_path))
    start, end = (pieces.piece_to_id(unused) for unused in MARKS)
    chat = [1, start, *pieces.encode("user the fox"), end]
    assert tokenizer.encode("<|im_start|>user the fox<|im_end|>") == chat
    assert tokenizer.decode(chat, skip_special_tokens=True) == "user the fox"
    assert (len(tokenizer), tokenizer.eos_token_id) == (pieces.get_piece_size(), 2)


@reads_pieces
@pytest.mark.parametrize(
    ("fields", "first"),
    [({}, 1), ({"auto_map": None, "tokenizer_class": "InternLM3Tokenizer"}, 1)]
    + [({"add_bos_token": begins}, 1 if begins else None) for begins in (True, False)],
)
def test_texts_of_internlm_begin_as_its_class_or_its_files_say(
    tmp_path: Path, fields: dict[str, Any], first: int | None
) -> None:
    pieces = sentencepieces(tmp_path, "internlm2")
    internlm_files(tmp_path, pieces, **fields)
    begin = [] if first is None else [first]
    assert load_tokenizer(str(tmp_path)).encode("the fox") == [*begin, *pieces.encode("the fox")]


def test_pieces_of_another_class_of_a_models_own_need_a_tokenizer_json(tmp_path: Path) -> None:
    internlm_files(tmp_path, sentencepieces(tmp_path, "llama"), tokenizer_class="OwnTokenizer")
    with pytest.raises(UnsupportedModelError, match="OwnTokenizer comes with code of its own"):
        load_tokenizer(str(tmp_path))


OTHERWISE = r"transformers .* reads its tokenizer\.model otherwise than sentencepiece: it needs a"


def test_pieces_that_an_older_transformers_reads_otherwise_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    internlm_files(tmp_path, sentencepieces(tmp_path, "internlm2"))
    read = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    read.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([])  # no space comes first
    monkeypatch.setattr(PreTrainedTokenizerFast, "from_pretrained", lambda *_, **__: read)
    with pytest.raises(UnsupportedModelError, match=OTHERWISE):
        load_tokenizer(str(tmp_path))


@reads_pieces
def test_marks_that_transformers_gives_other_ids_than_their_pieces_are_refused(
    tmp_path: Path,
) -> None:
    internlm_files(tmp_path, sentencepieces(tmp_path, "internlm2", model_type="unigram"))
    with pytest.raises(UnsupportedModelError, match=OTHERWISE):
        load_tokenizer(str(tmp_path))
