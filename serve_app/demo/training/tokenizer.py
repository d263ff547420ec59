"""The demo tokenizer: byte-level BPE with ChatML tokens, trained on the corpus.

The law: a name, a number or a word of content has the same tokens wherever it stands, so that
copying it is copying tokens. Digits are single; spaces go to marks and to small common words, on
either side.
"""

import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from serve_app.demo.training.corpus import Chat, chats
from serve_app.demo.training.corpus.texts import Texts

VOCABULARY = 4096
MAX_POSITIONS = 2048
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ANSWER = f"{START}assistant\n"
THOUGHT = "<think>\n"
# Not special, so that decoding keeps them in the text.
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
NAME, TOOLS_END = '{"name": "', "\n</tools>"  # before a tool's name; behind all definitions
# What is around every definition and every call: a token each, or tools would be mostly that.
SKELETON = (
    "# Tools\n\nYou may call one or more of these functions, "
    "each within <tool_call></tool_call>:\n<tools>",
    '\n{"type": "function", "function": ',
    NAME,
    '", "description": "',
    '", "parameters": {"type": "object", "properties": {',
    '", "parameters": {"type": "object", "properties": {"',
    '": {"type": "string',
    '": {"type": "integer',
    '": {"type": "number',
    '": {"type": "boolean',
    '"}}, "required": ["',
    TOOLS_END,
    '", "arguments": {',
    '", "arguments": {"',
)
TEMPLATE = Path(__file__).with_name("chat_template.jinja")
WORDS = Texts("tokens")
SMALL_WORDS, STARTS = WORDS.listed("small_words"), WORDS.listed("starts")
SMALL = rf"(?:{'|'.join(SMALL_WORDS)})(?![\p{{L}}\p{{M}}])"
# A space before a word of content goes to the mark or the small word that stands before it.
SPACE = rf"(?: (?=[\p{{L}}\p{{N}}])(?!{SMALL}))?"
MARKS = r"[^\s\p{L}\p{M}\p{N}]+"
PIECES = Regex(
    rf"'(?:s|t|re|ve|m|ll|d)(?!\p{{L}}){SPACE}"
    r"|(?:user|assistant|system)\n"
    rf"| {SMALL}{SPACE}"
    rf"|(?:{'|'.join(STARTS)})(?![\p{{L}}\p{{M}}]){SPACE}"
    r"|[\p{L}\p{M}]+|\p{N}"
    rf"| ?{MARKS}(?: {MARKS})*{SPACE}"
    r"|\s*[\r\n]+|\s+(?!\S)|\s"
)


def train_tokenizer(seed: int, chat_count: int = 60_000) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECES, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT, START, END, *TAGS, *SKELETON],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(map(rendered, islice(chats(f"{seed} tokenizer"), chat_count)), trainer)
    return wrap(_plain(bpe))


def wrap(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=END_OF_TEXT,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
        chat_template=template(),
    )


@cache
def template() -> str:
    return TEMPLATE.read_text(encoding="utf-8")


def rendered(chat: Chat) -> str:
    """The whole conversation, as the server renders it."""
    texts, _ = render_jinja_template(
        [chat.messages()],
        tools=chat.described_tools(),
        chat_template=template(),
        add_generation_prompt=False,
    )
    return str(texts[0])


def _plain(bpe: Tokenizer) -> Tokenizer:
    """Makes tags and skeleton plain tokens: a trainer makes no added tokens but special ones."""
    state = json.loads(bpe.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["content"] not in (*TAGS, *SKELETON)
    return Tokenizer.from_str(json.dumps(state))


def encoded(
    tokenizer: PreTrainedTokenizerFast, batch: list[Chat]
) -> list[tuple[list[int], list[int]]]:
    """Each chat's ids and, for each id, 1 where the assistant wrote it and 0 elsewhere."""
    pieces = [list(_pieces(chat)) for chat in batch]
    texts = [text for chat in pieces for text, _ in chat]
    encodings = iter(tokenizer.backend_tokenizer.encode_batch_fast(texts))
    rows: list[tuple[list[int], list[int]]] = []
    for chat in pieces:
        row: list[int] = []
        mask: list[int] = []
        for _, ours in chat:
            ids = next(encodings).ids
            row += ids
            mask += [int(ours)] * len(ids)
        rows.append((row, mask))
    return rows


def _pieces(chat: Chat) -> Iterator[tuple[str, bool]]:
    """Texts, and whether they are for the assistant to write; what it is given to begin is not."""
    first, *answers = rendered(chat).split(ANSWER)
    yield first, False
    for answer in answers:
        said, end, rest = answer.partition(END)
        begun = THOUGHT if chat.thinking and said.startswith(THOUGHT) else ""
        yield f"{ANSWER}{begun}", False
        yield f"{said.removeprefix(begun)}{end}", True
        yield rest, False
