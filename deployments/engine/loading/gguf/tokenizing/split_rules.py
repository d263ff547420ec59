"""The rules by which byte-level BPE splits a text before it merges: `tokenizer.ggml.pre`.

Each expression of a rule isolates what it matches in the parts that those before it have left.
Where llama.cpp rewrites the expressions of a model's own tokenizer.json, for a library that knows
fewer of them, the own ones stand here: they are what the model was trained with.

Source: `llm_tokenizer_bpe` and `llama_vocab::impl::load` in llama.cpp's llama-vocab.cpp, and
`unicode_regex_split_custom` in its unicode.cpp.
"""

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT, GEMMA4 = "default", "gemma4"


@dataclass(frozen=True)
class SplitRule:
    """How a text becomes words.

    patterns: in the syntax of Oniguruma.
    keeps_tokens: a word that is a token is not merged from its characters.
    adds_bos, adds_sep: texts begin with BOS, and SEP parts the two texts of a pair, where the file
        does not say whether they do.
    is_raw: tokens are plain text with a mark for spaces, and no text of bytes.
    is_composed: texts are brought to NFC, as the models' own files say. llama.cpp doesn't.
    """

    patterns: tuple[str, ...]
    keeps_tokens: bool = False
    adds_bos: bool = False
    adds_sep: bool = False
    is_raw: bool = False
    is_composed: bool = False


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s+(?!\S)|\s+"
NEWLINES_AND_SPACES = rf"\s*[\r\n]+|{SPACES}"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SIGNS = r" ?[^\s\p{L}\p{N}]+"
GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+|{SIGNS}|{SPACES}"
LLAMA3 = rf"{CONTRACTIONS}|{WORD}|\p{{N}}{{1,3}}|{SIGNS}[\r\n]*|{NEWLINES_AND_SPACES}"
QWEN2 = rf"{CONTRACTIONS}|{WORD}|\p{{N}}|{SIGNS}[\r\n]*|{NEWLINES_AND_SPACES}"
QWEN35 = (
    rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{NEWLINES_AND_SPACES}"
)
MINICPM5 = rf"{CONTRACTIONS}|{WORD}|\p{{N}}+|{SIGNS}[\r\n]*|{NEWLINES_AND_SPACES}"
UFAKZEKA = rf"{WORD}|\p{{N}}|{SIGNS}[\r\n]*|{NEWLINES_AND_SPACES}"
SEED_CODER = rf"{CONTRACTIONS}|{WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{NEWLINES_AND_SPACES}"
BAILING = (
    rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}+|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{N}}]++[\r\n]*|\s*[\r\n]|{SPACES}"
)
EXAONE_MOE = (
    rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
    rf"{SIGNS}[\r\n/]?|\s*[\r\n]|{SPACES}"
)
JAIS2 = (
    rf"{CONTRACTIONS}|{WORD}|\p{{N}}{{1,3}}|{SIGNS}[\r\n]*|\s*[\r\n]+|"
    + "|".join(rf"\s{{{length}}}(?!\S)" for length in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
    + r"|\s{1}"
)


def _cased(contraction: str, digits: str, ends: str, but: str = "") -> str:
    """Words whose capitals come first, as GPT-4o splits them. `but`: what is no letter of these."""
    upper, lower = (
        rf"[\p{{L{case}}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
        if case == "u"
        else rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
        for case in "ul"
    )
    first = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{first}{upper}*{lower}+{contraction}|{first}{upper}+{lower}*{contraction}|"
        rf"{digits}|{SIGNS}[{ends}]*|{NEWLINES_AND_SPACES}"
    )


TEKKEN = _cased("", r"\p{N}", r"\r\n/")
GPT4O = _cased(f"{CONTRACTIONS}?", r"\p{N}{1,3}", r"\r\n/")
YOUTU = _cased(f"{CONTRACTIONS}?", r"\p{N}", r"\r\n/")
KIMI = r"[\p{Han}]+|" + _cased(f"{CONTRACTIONS}?", r"\p{N}{1,3}", r"\r\n", r"&&[^\p{Han}]")

ASCII_SIGNS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
LETTERS_OR_SIGNS = (
    rf"{ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
)
DEEPSEEK3 = rf"{LETTERS_OR_SIGNS}[\r\n]*|{NEWLINES_AND_SPACES}"
SPARK = rf"{LETTERS_OR_SIGNS}|[\r\n]|{SPACES}"
HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
HAN_AND_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|"
    "[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    f"[\u3105-\u312f]+|{HAN_AND_KANA}"
)
ASIAN_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+"
)
# The letters with a case that DeepSeek lists, which are not all that there are.
CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_SIGNS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
LINES = r"[^\n]+|[\n]+"
DIGIT = r"\p{N}"

NAMES_AND_RULES: tuple[tuple[str, SplitRule], ...] = (
    (
        DEFAULT,
        SplitRule((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    ),
    (
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
        "mpt olmo jais trillion granite-docling exaone4",
        SplitRule((GPT2,)),
    ),
    ("jina-v1-en jina-v2-code roberta-bpe", SplitRule((GPT2,), adds_sep=True)),
    (
        "starcoder refact smollm codeshell exaone minerva-7b mellum2",
        SplitRule((DIGIT, GPT2)),
    ),
    ("command-r", SplitRule((DIGIT, GPT2), is_composed=True)),
    ("falcon", SplitRule((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"))),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        SplitRule((LLAMA3,), keeps_tokens=True, adds_bos=True),
    ),
    ("dbrx smaug-bpe glm4 chatglm-bpe", SplitRule((LLAMA3,))),
    ("jais-2", SplitRule((JAIS2,))),
    ("minicpm5", SplitRule((r"\p{N}{1,3}", MINICPM5), keeps_tokens=True)),
    ("qwen2 f2llmv2", SplitRule((QWEN2,), is_composed=True)),
    (
        "deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2",
        SplitRule((QWEN2,)),
    ),
    ("qwen35", SplitRule((QWEN35,), is_composed=True)),
    ("ufakzeka", SplitRule((UFAKZEKA,))),
    ("laguna", SplitRule((LINES, QWEN2))),
    ("seed-coder", SplitRule((SEED_CODER,))),
    ("bailingmoe bailingmoe2 llada-moe", SplitRule((BAILING,))),
    ("exaone-moe", SplitRule((EXAONE_MOE,))),
    ("tekken", SplitRule((TEKKEN,), keeps_tokens=True, adds_bos=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", SplitRule((GPT4O,))),
    ("granite-embed-multi-97m", SplitRule((GPT4O,), keeps_tokens=True)),
    ("tiny_aya cohere2moe", SplitRule((r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O))),
    ("youtu", SplitRule((YOUTU_SCRIPTS, YOUTU), keeps_tokens=True)),
    ("kimi-k2", SplitRule((KIMI,))),
    (
        "deepseek-llm",
        SplitRule(
            (
                r"[\r\n]",
                rf"\s?[{CASED_LETTERS}]+",
                rf"\s?[{DEEPSEEK_SIGNS}]+",
                r"\s+$",
                HAN_AND_HANGUL,
                r"\p{N}+",
            )
        ),
    ),
    (
        "deepseek-coder",
        SplitRule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN_AND_HANGUL, DIGIT)),
    ),
    (
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
        SplitRule((r"\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK3)),
    ),
    ("spark2_5", SplitRule((r"\p{N}{1,3}", HAN_AND_KANA, SPARK, DIGIT))),
    (
        "afmoe",
        SplitRule(
            (
                # Groups of three digits, counted from the end of a number.
                r"\p{N}+",
                r"\A\p{N}{1,2}(?=(?:\p{N}{3})+(?!\p{N}))",
                r"\p{N}{1,3}",
                ASIAN_SCRIPTS,
                DEEPSEEK3,
            )
        ),
    ),
    ("superbpe", SplitRule((r"\p{N}+", r"(?=(\d{3})+(?!\d))"))),
    ("bloom gpt3-finnish poro-chat", SplitRule((BLOOM,))),
    ("viking", SplitRule((BLOOM, DIGIT))),
    (
        "chameleon",
        SplitRule(
            (
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                r"([\t\n]|    |  )",
                DIGIT,
                r"[\p{P}!-/:-@\[-`{-~]",
                GPT2,
            ),
            adds_bos=True,
        ),
    ),
    (f"{GEMMA4} granite-embed-multi-311m", SplitRule((LINES,), adds_bos=True, is_raw=True)),
    ("sarvam-moe", SplitRule((LINES,), is_raw=True)),
)
SPLIT_RULES: Mapping[str, SplitRule] = {
    name: rule for names, rule in NAMES_AND_RULES for name in names.split()
}
