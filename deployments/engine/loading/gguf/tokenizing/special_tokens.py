"""Finds the tokens with a meaning: those that begin, end and part texts, and all that end answers.

Source: `llama_vocab::impl::load` in llama.cpp's llama-vocab.cpp.
"""

from collections.abc import Mapping

from deployments.engine.loading.gguf.tokenizing.vocabulary import (
    PREFIX,
    Metadata,
    TokenType,
    Vocabulary,
    broken,
    id_of,
)

# Keys by the names that chat templates use. The third is spelled so in files.
NAMED_KEYS: Mapping[str, str] = {
    "bos_token": f"{PREFIX}bos_token_id",
    "eos_token": f"{PREFIX}eos_token_id",
    "sep_token": f"{PREFIX}seperator_token_id",
    "unk_token": f"{PREFIX}unknown_token_id",
    "pad_token": f"{PREFIX}padding_token_id",
    "cls_token": f"{PREFIX}cls_token_id",
    "mask_token": f"{PREFIX}mask_token_id",
}
# What a file leaves out that its kind of tokenizer has.
DEFAULT_IDS: Mapping[str, Mapping[str, int]] = {
    "llama": {"bos_token": 1, "eos_token": 2},
    "t5": {"eos_token": 1, "unk_token": 2},
    "bert": {"bos_token": 101, "sep_token": 102, "unk_token": 100},
}
ENDS_OF_ANSWERS = tuple(f"{PREFIX}{name}_token_id" for name in ("eos", "eot", "eom"))
# Parts of code to fill in end answers too: no answer goes on behind them.
ENDS_OF_FILES = tuple(f"{PREFIX}fim_{name}_token_id" for name in ("pad", "rep", "sep"))
END_TEXTS = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"),
        *("<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<eos>"),
        *("<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>", "<turn|>", "<|tool_response>"),
        *("<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~["),
    }
)
# An end where it is a control token. Gemma writes HTML with it.
END_OR_HTML = "</s>"
END_OF_FILE_TEXTS: Mapping[str, frozenset[str]] = {
    ENDS_OF_FILES[0]: frozenset({"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}),
    ENDS_OF_FILES[1]: frozenset(
        {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}
    ),
    ENDS_OF_FILES[2]: frozenset({"<|file_sep|>"}),
}
# Where each of the first is an end, the last one only ends a part of an answer, or none.
EXCEPTIONS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"<|return|>", "<|call|>"}), "<|end|>"),
    (frozenset({"<|return|>", "<|calls|>"}), "<|end|>"),
    (frozenset({"<|call|>", "<|flush|>"}), "<|end|>"),
    (frozenset({"<|calls|>", "<|flush|>"}), "<|end|>"),
    (frozenset({"<|tool_response>"}), END_OR_HTML),
)


def named_ids(metadata: Metadata, kind: str, vocabulary: Vocabulary) -> dict[str, int]:
    """The ids of special tokens by the names that chat templates use, in the order of NAMED_KEYS.

    Raises GGUFError for one that is outside the vocabulary.
    """
    found: dict[str, int] = {}
    defaults = DEFAULT_IDS.get(kind, {})
    for name, key in NAMED_KEYS.items():
        token_id = id_of(metadata, key, vocabulary)
        if token_id is None and defaults.get(name, len(vocabulary.tokens)) < len(vocabulary.tokens):
            token_id = defaults[name]
        if token_id is not None:
            found[name] = token_id
    return found


def end_ids(metadata: Metadata, eos: int | None, vocabulary: Vocabulary) -> frozenset[int]:
    """All tokens that end an answer: those that the file names, and those with a known text.

    Raises GGUFError for one that is outside the vocabulary.
    """
    named = {id_of(metadata, key, vocabulary) for key in ENDS_OF_ANSWERS} | {eos}
    named.update(vocabulary.ids.get(text) for text in END_TEXTS)
    html = vocabulary.ids.get(END_OR_HTML)
    if html is not None and vocabulary.types[html] == TokenType.CONTROL:
        named.add(html)
    for key in ENDS_OF_FILES:
        token_id = id_of(metadata, key, vocabulary)
        texts = END_OF_FILE_TEXTS[key]
        named.update([token_id] if token_id is not None else map(vocabulary.ids.get, texts))
    found = frozenset(token_id for token_id in named if token_id is not None)
    texts_found = {vocabulary.tokens[token_id] for token_id in found}
    excepted = {text for others, text in EXCEPTIONS if others <= texts_found}
    return found - {vocabulary.ids.get(text, -1) for text in excepted}


def needed(ids: Mapping[str, int], name: str) -> int:
    """Raises GGUFError where the file has no such token, and needs it."""
    if name not in ids:
        raise broken(NAMED_KEYS[name], "it is missing, and texts need it")
    return ids[name]
