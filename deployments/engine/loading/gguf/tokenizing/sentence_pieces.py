"""Builds the tokenizers of SentencePiece: BPE by scores (`llama`), and unigrams (`t5`)."""

from collections.abc import Iterator

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers

from deployments.engine.loading.gguf.tokenizing.charsmap import checked_charsmap
from deployments.engine.loading.gguf.tokenizing.vocabulary import (
    PREFIX,
    SCORES,
    SPACE_MARK,
    TYPES,
    Metadata,
    TokenType,
    Vocabulary,
    broken,
    flag_of,
)

ADD_PREFIX = f"{PREFIX}add_space_prefix"
REMOVE_SPACES = f"{PREFIX}remove_extra_whitespaces"
CHARSMAP = f"{PREFIX}precompiled_charsmap"
BYTE_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def pieces_by_score(metadata: Metadata, vocabulary: Vocabulary, unknown: int | None) -> Tokenizer:
    """The tokenizer of kind `llama`. `unknown`: the id for what no token has.

    Raises GGUFError for broken metadata.
    """
    has_bytes = vocabulary.ids.keys() >= BYTE_TOKENS
    if unknown is None and not has_bytes:  # parts of texts would be lost
        raise broken(TYPES, "neither all bytes nor what is unknown have a token")
    model = models.BPE(
        vocab=dict(vocabulary.ids),
        merges=list(merges_by_score(vocabulary)),
        byte_fallback=has_bytes,
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
    )
    tokenizer = Tokenizer(model)
    has_prefix = flag_of(metadata, ADD_PREFIX, True)
    marked = normalizers.Replace(" ", SPACE_MARK)
    prefix = [normalizers.Prepend(SPACE_MARK)] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, marked])
    tokenizer.decoder = _decoder(has_prefix)
    return tokenizer


def merges_by_score(vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """All pairs of pieces that make a piece, the ones of the piece with the best score first.

    SentencePiece joins the two neighbours whose piece has the best score. So a pair has the rank of
    its piece. Equal scores, which some files have everywhere, go by id. Pieces that a user has
    defined come first, the longest first: they are found before anything else is joined.

    Raises GGUFError where the scores are missing.
    """
    if vocabulary.scores is None:
        raise broken(SCORES, "it is missing")
    joined = vocabulary.of_type(TokenType.NORMAL, TokenType.UNUSED)
    scores = -vocabulary.scores[joined]
    tokens = vocabulary.tokens
    defined = [tokens[token_id] for token_id in vocabulary.of_type(TokenType.USER_DEFINED)]
    pieces = sorted(defined, key=len, reverse=True)
    pieces += [tokens[joined[at]] for at in np.argsort(scores, kind="stable")]
    known = set(pieces)
    for piece in pieces:
        for at in range(len(piece) - 1, 0, -1):
            first = piece[:at]
            if first in known and (second := piece[at:]) in known:
                yield first, second


def unigrams(metadata: Metadata, vocabulary: Vocabulary, unknown: int | None) -> Tokenizer:
    """The tokenizer of kind `t5`. `unknown`: the id for what no token has.

    Raises GGUFError for broken metadata.
    """
    if vocabulary.scores is None:
        raise broken(SCORES, "it is missing")
    if unknown is None:
        raise broken(TYPES, "no token is the unknown one")
    scores = vocabulary.scores.copy()
    scores[vocabulary.of_type(TokenType.USER_DEFINED)] = 0
    pieces = list(zip(vocabulary.tokens, scores.tolist(), strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unknown))
    steps: list[normalizers.Normalizer] = []
    if CHARSMAP in metadata:
        steps.append(normalizers.Precompiled(checked_charsmap(CHARSMAP, metadata[CHARSMAP])))
    if flag_of(metadata, REMOVE_SPACES, False):
        steps.append(normalizers.Replace(Regex(r"\A +| +\z"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    has_prefix = flag_of(metadata, ADD_PREFIX, False)
    if has_prefix:
        steps.append(normalizers.Prepend(SPACE_MARK))
    steps.append(normalizers.Replace(" ", SPACE_MARK))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = _decoder(has_prefix)
    return tokenizer


def _decoder(has_prefix: bool) -> decoders.Decoder:
    steps: list[decoders.Decoder] = [
        decoders.Replace(SPACE_MARK, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if has_prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)
