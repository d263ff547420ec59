"""Model cards over tokenizers trained here: a byte-level one, and one with metaspace and bytes."""

import json
from functools import cache

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import AnswerKinds
from deployments.contract.requests import SamplingParams

CORPUS = [
    "Hello world, how are you today? I am fine, thank you.",
    "Grüße aus Köln: schöne Straße, 日本語のテキスト, emoji 🙂🙃 and 👩‍👩‍👧.",
    "def f(x):\n    return x + 1\n\n\nstop stop stopping stopped STOP",
]
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('no role ' + m.role) }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}={{ c.function.arguments | tojson }}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if shout %}LOUD{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ["<|im_start|>", "<|im_end|>"]
WORDS = [f"w{index}" for index in range(40)]
VOCABULARY = {word: index for index, word in enumerate(["[CLS]", "[SEP]", "[UNK]", *WORDS])}


@cache
def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@cache
def metaspace() -> Tokenizer:
    """A tokenizer like Llama 2's: words behind U+2581, bytes as <0xAB> where no piece fits."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>", "<s>", "</s>", *pieces], show_progress=False
    )
    tokenizer.train_from_iterator(["Hello world how are you stop stopping"], trainer)
    return _plain_pieces(tokenizer, pieces)


def _plain_pieces(tokenizer: Tokenizer, pieces: list[str]) -> Tokenizer:
    """Byte pieces belong to the vocabulary and are not added tokens: text never spells them."""
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] not in pieces]
    return Tokenizer.from_str(json.dumps(state))


def bert_like() -> Tokenizer:
    """A token a word, and marks around texts and pairs as BERT has them."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
    )
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    assert found is not None
    return found


def card(
    tokenizer: Tokenizer | None = None,
    *,
    name: str = "tiny",
    context_length: int = 512,
    chat_template: str | None = CHAT_TEMPLATE,
    sampling: SamplingParams | None = None,
    answers: AnswerKinds | None = None,
) -> ModelCard:
    tokenizer = byte_level() if tokenizer is None else tokenizer
    end = tokenizer.token_to_id("<|im_end|>")
    return ModelCard(
        name=name,
        version="1",
        created=1_700_000_000,
        context_length=context_length,
        vocab_size=tokenizer.get_vocab_size(),
        page_size=16,
        tokenizer_json=tokenizer.to_str(),
        chat_template=chat_template,
        special_tokens=(("eos_token", "<|im_end|>"),),
        eos_token_ids=() if end is None else (end,),
        sampling=sampling or SamplingParams(),
        answers=answers or AnswerKinds(),
    )
