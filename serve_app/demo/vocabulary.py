"""The demo tokenizer: byte-level BPE with ChatML tokens, trained on the corpus."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from serve_app.demo.corpus import Chat, chats

VOCABULARY = 4096
MAX_POSITIONS = 2048
END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Reserved for later models of this shape: not special, so that decoding keeps them in the text.
TAGS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def train_tokenizer(seed: int, chat_count: int = 40_000) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT, START, END, *TAGS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_texts(f"{seed} tokenizer", chat_count), trainer)
    return wrap(_plain_tags(bpe))


def wrap(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=END_OF_TEXT,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATE.read_text(encoding="utf-8"),
    )


def _plain_tags(bpe: Tokenizer) -> Tokenizer:
    state = bpe.to_str()
    for tag in TAGS:
        state = state.replace(
            f'"content":"{tag}","single_word":false,"lstrip":false,"rstrip":false,'
            '"normalized":false,"special":true',
            f'"content":"{tag}","single_word":false,"lstrip":false,"rstrip":false,'
            '"normalized":false,"special":false',
        )
    return Tokenizer.from_str(state)


def _texts(seed: str, count: int) -> Iterator[str]:
    for chat in islice(chats(seed), count):
        for turn in chat:
            yield turn.role
            yield turn.text


def encoded(
    tokenizer: PreTrainedTokenizerFast, batch: list[Chat]
) -> list[tuple[list[int], list[int]]]:
    """Each chat's ids and, for each id, 1 where the assistant wrote it and 0 elsewhere."""
    pieces = [piece for chat in batch for piece in _pieces(chat)]
    ids = tokenizer.backend_tokenizer.encode_batch_fast([text for text, _ in pieces])
    rows: list[tuple[list[int], list[int]]] = []
    at = 0
    for chat in batch:
        row: list[int] = []
        mask: list[int] = []
        for (_, ours), encoding in zip(_pieces(chat), ids[at:], strict=False):
            row += encoding.ids
            mask += [int(ours)] * len(encoding.ids)
        at += len(_pieces(chat))
        rows.append((row, mask))
    return rows


def _pieces(chat: Chat) -> list[tuple[str, bool]]:
    pieces: list[tuple[str, bool]] = []
    for turn in chat:
        pieces.append((f"{START}{turn.role}\n", False))
        pieces.append((f"{turn.text}{END}", turn.role == "assistant"))
        pieces.append(("\n", False))
    return pieces
