"""Builds the tokenizers whose files list the merges of BPE: `gpt2` and `gemma4`."""

from collections.abc import Mapping

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from deployments.engine.loading.gguf.tokenizing.split_rules import (
    GEMMA4,
    SPLIT_RULES,
    SplitRule,
)
from deployments.engine.loading.gguf.tokenizing.vocabulary import (
    PREFIX,
    SPACE_MARK,
    Metadata,
    TokenType,
    Vocabulary,
    broken,
    quoted,
    text_list,
    text_of,
)

PRE, MERGES = f"{PREFIX}pre", f"{PREFIX}merges"


def split_rule(metadata: Metadata) -> SplitRule:
    """The rule that the file names. Raises GGUFError for one that is not known."""
    name = text_of(metadata, PRE)
    if name is None:
        raise broken(PRE, "it is missing, so it is not known how a text is split into words")
    found = SPLIT_RULES.get(name)
    if found is None:
        raise broken(PRE, f"the rule {quoted(name)} is not supported")
    return found


def gemma4_rule() -> SplitRule:
    return SPLIT_RULES[GEMMA4]


def byte_pairs(metadata: Metadata, vocabulary: Vocabulary, rule: SplitRule) -> Tokenizer:
    """Raises GGUFError where the merges are missing, or are not of tokens."""
    unknown = vocabulary.of_type(TokenType.UNKNOWN)
    model = models.BPE(
        vocab=dict(vocabulary.ids),
        merges=_merges(text_list(metadata, MERGES), vocabulary.ids),
        ignore_merges=rule.keeps_tokens,
        byte_fallback=rule.is_raw,
        unk_token=vocabulary.tokens[unknown[0]] if rule.is_raw and unknown else None,
        fuse_unk=True,
    )
    tokenizer = Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    if rule.is_raw:
        tokenizer.normalizer = normalizers.Replace(" ", SPACE_MARK)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        return tokenizer
    if rule.is_composed:
        tokenizer.normalizer = normalizers.NFC()
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _merges(texts: list[str], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs in the order in which they are merged. A pair counts where it is first."""
    found: dict[tuple[str, str], None] = {}
    for number, text in enumerate(texts):
        at = text.find(" ", 1)
        first, second = text[:at], text[at + 1 :]
        if at < 0 or not second:
            raise broken(MERGES, f"merge {number} is {quoted(text)}, and no pair of tokens")
        for token in (first, second, first + second):
            if token not in ids:
                raise broken(MERGES, f"merge {number}, {quoted(text)}: {quoted(token)} is no token")
        found[first, second] = None
    return list(found)
