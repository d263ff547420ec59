"""Builds a tokenizer from the metadata of a GGUF file, with all that a model card says of text.

Ids are those of the tokenizer that the model was trained with, as far as a file tells.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer, processors

from deployments.engine.loading.gguf.tokenizing.byte_pairs import (
    byte_pairs,
    gemma4_rule,
    split_rule,
)
from deployments.engine.loading.gguf.tokenizing.sentence_pieces import pieces_by_score, unigrams
from deployments.engine.loading.gguf.tokenizing.special_tokens import (
    end_ids,
    named_ids,
    needed,
)
from deployments.engine.loading.gguf.tokenizing.vocabulary import (
    PREFIX,
    Metadata,
    TokenType,
    Vocabulary,
    broken,
    flag_of,
    quoted,
    read_vocabulary,
    text_of,
)
from deployments.engine.loading.gguf.tokenizing.word_pieces import word_pieces

MODEL, ADD_BOS, ADD_EOS, ADD_SEP = (
    f"{PREFIX}{name}" for name in ("model", "add_bos_token", "add_eos_token", "add_sep_token")
)
# Phi-3 was trained without the spaces that its templates have behind tokens, but for these tokens.
ARCHITECTURE, STRIPPING = "general.architecture", "phi3"
NEVER_STRIPPING = frozenset({"<unk>", "<s>", "<|endoftext|>"})
TEMPLATE = "tokenizer.chat_template"
DEFAULT_TEMPLATE = "default"  # the name of the template for any conversation


@dataclass(frozen=True)
class GGUFTokenizer:
    """All that a file says of text.

    tokenizer: puts BOS and EOS around a text where the file wants them.
    special_tokens: texts by the names that chat templates use: ("bos_token", "<s>"), ...
    chat_templates: by name, "default" for any conversation; empty where the file has none.
    end_ids: of all tokens that end an answer.
    """

    tokenizer: Tokenizer
    special_tokens: tuple[tuple[str, str], ...]
    chat_templates: Mapping[str, str]
    end_ids: frozenset[int]


@dataclass(frozen=True)
class _Frame:
    """The tokens around a text.

    parting: what parts the end of a text from the second one of a pair.
    second_type: the type of the tokens of that one.
    """

    first: tuple[int, ...]
    last: tuple[int, ...]
    parting: tuple[int, ...] = ()
    second_type: int = 0


def read_gguf_tokenizer(metadata: Metadata) -> GGUFTokenizer:
    """Raises GGUFError for metadata that is broken, or of a kind that is not read. It names the
    key, and not the file."""
    kind, vocabulary, ids = _tokens(metadata)
    tokenizer, frame = _build(kind, metadata, vocabulary, ids)
    ends = end_ids(metadata, ids.get("eos_token"), vocabulary)
    control = {*ends, *vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN)}
    control |= {*frame.first, *frame.last}
    defined = set(vocabulary.of_type(TokenType.USER_DEFINED)) - control
    strips = kind == "llama" and text_of(metadata, ARCHITECTURE) == STRIPPING
    tokenizer.add_special_tokens(_added(tokenizer, control, strips))
    tokenizer.add_tokens(_added(tokenizer, defined, strips))
    tokenizer.post_processor = _post_processor(tokenizer, frame)
    return GGUFTokenizer(
        tokenizer,
        tuple((name, _text(tokenizer, token_id)) for name, token_id in ids.items()),
        _chat_templates(metadata),
        ends,
    )


def read_end_ids(metadata: Metadata) -> frozenset[int]:
    """The ids of all tokens that end an answer. Raises GGUFError as `read_gguf_tokenizer` does."""
    _, vocabulary, ids = _tokens(metadata)
    return end_ids(metadata, ids.get("eos_token"), vocabulary)


def _tokens(metadata: Metadata) -> tuple[str, Vocabulary, Mapping[str, int]]:
    """The kind of a tokenizer, its tokens, and the ids of those that have a name."""
    kind = text_of(metadata, MODEL)
    if kind is None:
        raise broken(MODEL, "it is missing")
    vocabulary = read_vocabulary(metadata)
    return kind, vocabulary, named_ids(metadata, kind, vocabulary)


def _build(
    kind: str, metadata: Metadata, vocabulary: Vocabulary, ids: Mapping[str, int]
) -> tuple[Tokenizer, _Frame]:
    unknown = ids.get("unk_token", next(iter(vocabulary.of_type(TokenType.UNKNOWN)), None))
    match kind:
        case "gpt2" | "gemma4":
            rule = gemma4_rule() if kind == "gemma4" else split_rule(metadata)
            # Files of Gemma 4 say that texts don't begin with BOS, and are wrong.
            adds_bos = rule is gemma4_rule() or flag_of(metadata, ADD_BOS, rule.adds_bos)
            adds_sep = flag_of(metadata, ADD_SEP, rule.adds_sep)
            adds_eos = flag_of(metadata, ADD_EOS, False)
            frame = _frame(ids, adds_bos, adds_eos, adds_sep)
            return byte_pairs(metadata, vocabulary, rule), frame
        case "llama" | "t5":
            adds_bos = flag_of(metadata, ADD_BOS, kind == "llama")
            adds_eos = flag_of(metadata, ADD_EOS, kind == "t5")
            frame = _frame(ids, adds_bos, adds_eos, flag_of(metadata, ADD_SEP, False))
            build = pieces_by_score if kind == "llama" else unigrams
            return build(metadata, vocabulary, unknown), frame
        case "bert":
            first = ids["cls_token"] if "cls_token" in ids else needed(ids, "bos_token")
            frame = _Frame((first,), (needed(ids, "sep_token"),), second_type=1)
            return word_pieces(metadata, vocabulary, needed(ids, "unk_token")), frame
    raise broken(MODEL, f"tokenizers of kind {quoted(kind)} are not supported")


def _frame(ids: Mapping[str, int], adds_bos: bool, adds_eos: bool, adds_sep: bool) -> _Frame:
    return _Frame(
        (needed(ids, "bos_token"),) if adds_bos else (),
        (needed(ids, "eos_token"),) if adds_eos else (),
        (needed(ids, "sep_token"),) if adds_sep else (),
    )


def _added(tokenizer: Tokenizer, ids: Iterable[int], strips: bool) -> list[AddedToken]:
    """Tokens that are found in a text before it is split, where they are spelled in it.

    strips: without the spaces behind them.
    """
    texts = [_text(tokenizer, token_id) for token_id in sorted(ids)]
    return [
        AddedToken(text, rstrip=strips and text not in NEVER_STRIPPING, normalized=False)
        for text in texts
    ]


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    found: str | None = tokenizer.id_to_token(token_id)
    assert found is not None
    return found


def _post_processor(tokenizer: Tokenizer, frame: _Frame) -> processors.PostProcessor:
    def tokens(ids: Iterable[int], type_id: int = 0) -> list[str]:
        return [f"{token_id}:{type_id}" for token_id in ids]

    single = [*tokens(frame.first), "$A:0", *tokens(frame.last)]
    second = [f"$B:{frame.second_type}", *tokens(frame.last, frame.second_type)]
    used = {*frame.first, *frame.last, *frame.parting}
    return processors.TemplateProcessing(
        single=single,
        pair=[*single, *tokens(frame.parting), *second],
        special_tokens=[
            {"id": str(found), "ids": [found], "tokens": [_text(tokenizer, found)]}
            for found in sorted(used)
        ],
    )


def _chat_templates(metadata: Metadata) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in metadata:
        name = DEFAULT_TEMPLATE if key == TEMPLATE else key.removeprefix(f"{TEMPLATE}.")
        if key == TEMPLATE or name != key:
            text = text_of(metadata, key)
            found[name] = text or ""
    return found
