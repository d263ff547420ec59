"""Builds the tokenizer of BERT: words, cut into the longest pieces that the vocabulary has."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from deployments.engine.loading.gguf.tokenizing.vocabulary import (
    PREFIX,
    SPACE_MARK,
    TOKENS,
    Metadata,
    TokenType,
    Vocabulary,
    broken,
    flag_of,
    quoted,
)

WORD_MARK = SPACE_MARK  # that GGUF writes before the first piece of a word
LATER_MARK = "##"  # that BERT writes before the other ones
LOWERCASE = f"{PREFIX}normalizer.lowercase"
STRIP_ACCENTS = f"{PREFIX}normalizer.strip_accents"


def word_pieces(metadata: Metadata, vocabulary: Vocabulary, unknown: int) -> Tokenizer:
    """The tokenizer of kind `bert`. `unknown`: the id of words that have no pieces.

    Raises GGUFError for broken metadata.
    """
    whole = {*vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN), unknown}
    texts = [
        token if token_id in whole else _as_in_bert(token)
        for token_id, token in enumerate(vocabulary.tokens)
    ]
    ids = {text: token_id for token_id, text in enumerate(texts)}
    if len(ids) != len(texts):
        twice = next(text for token_id, text in enumerate(texts) if ids[text] != token_id)
        raise broken(TOKENS, f"{quoted(twice)} is there twice")
    lowercase = flag_of(metadata, LOWERCASE, True)
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=texts[unknown]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=flag_of(metadata, STRIP_ACCENTS, lowercase)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(LATER_MARK)
    return tokenizer


def _as_in_bert(token: str) -> str:
    """A token as vocabularies of BERT spell it."""
    if token.startswith(WORD_MARK) and token != WORD_MARK:
        return token[1:]
    # Older files have special tokens as they are, and don't say which ones are special.
    is_special = token.startswith("[") and token.endswith("]")
    return token if is_special else f"{LATER_MARK}{token}"
