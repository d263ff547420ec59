"""The model card: how the model was made, what it can do, and what it really answers."""

from dataclasses import dataclass
from pathlib import Path

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from serve_app.demo.ask import answer

QUESTIONS = (
    "Hello!",
    "Who are you?",
    "What is Manta?",
    "How do I load another model?",
    "What is the capital of France?",
    "what is 7 + 5",
    "Count to 10.",
    "What day comes after Monday?",
    "What is the opposite of hot?",
    "What sound does a cow make? Answer in one word.",
    "Name three fruits.",
    "Tell me a short story about a fox named Ben.",
    "What time is it?",
    "Explain quantum physics.",
    "Thank you!",
)
CARD = """\
# Manta demo model

A tiny Llama ({parameters:,} parameters, bfloat16) trained from scratch on text that
`serve_app/demo/corpus/` generates. It is there so that a fresh Manta answers in English at once,
with nothing to download. It is no model to work with.

## How it was made

    {command}

| | |
|---|---|
| Seed | {seed} |
| Steps | {steps:,} |
| Tokens read | {tokens:,} |
| Final loss | {loss:.3f} nats a token of the assistant, on fresh text, last 100 steps |
| Optimizer | AdamW, cosine schedule with warmup, bfloat16 autocast on a CPU |
| Tokenizer | byte-level BPE, {vocabulary:,} entries, ChatML tokens |
| Context | trained up to 1,024 tokens |

The weights depend on the seed, the number of threads and the processor: another machine gives
a model of the same kind, not the same bytes.

## What it can do

It has read chats of greetings and small talk, who it is and what Manta is, capitals, colours,
animals, opposites, days and months, one-sentence facts on common things, jokes, short stories,
small sums, counting, lists, repeating words, and names told earlier in the conversation. The first
of these it knows best; lists, one-word answers, stories and names it has not read often go wrong.

## What it cannot do

Everything else. Off its topics it should say that it is a tiny demo model; often it does, and
sometimes it gives a wrong answer in good English. Big sums, words it has never read and
languages other than English are beyond it. It follows no system prompt and calls no tools.
At temperature 1 now and then a word is out of place.

## What it answers (greedy)

{samples}
"""


@dataclass(frozen=True)
class Run:
    command: str
    seed: int
    steps: int
    tokens: int
    loss: float


def write_card(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, run: Run, path: Path
) -> None:
    text = CARD.format(
        parameters=model.num_parameters(),
        vocabulary=len(tokenizer),
        samples="\n\n".join(_sample(model, tokenizer, question) for question in QUESTIONS),
        **vars(run),
    )
    path.write_text(text, encoding="utf-8")


def _sample(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, question: str) -> str:
    reply = answer(model, tokenizer, [{"role": "user", "content": question}])
    return f"**{question}**\n\n> {reply}"
