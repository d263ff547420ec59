"""A tokenizer cuts texts as its model was trained, and has the template of any of its files."""

import base64
import json
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from deployments.engine.loading.loader import load_tokenizer
from deployments.engine.model_card import chat_templates
from tests.checkpoints import save_checkpoint

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
    vocabulary = {one: at for at, one in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
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
        {"rank": at, "token_bytes": base64.b64encode(one).decode(), "token_str": None}
        for at, one in enumerate(tokens)
    ]
    named = [{"rank": at, "token_str": one, "is_control": True} for at, one in enumerate(specials)]
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
