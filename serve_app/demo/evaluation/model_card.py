"""The model card: how the model was made, what it can do, its scores, and what it really said.

python -m serve_app.demo.evaluation.model_card --scores scores.json --talks talks.json
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from serve_app.demo.evaluation.scoring import SkillScore
from serve_app.demo.model_files import MODEL
from serve_app.demo.training.network import DEMO
from serve_app.demo.training.train import CHOSEN, GROWN, HALF

CARD = """\
# Manta demo model

A tiny Llama ({parameters:,} parameters, bfloat16) trained from scratch on text that
`serve_app/demo/training/corpus/` generates: no foreign weights, no foreign data. It is there so
that a fresh Manta answers at once, with nothing to download. It is no model to work with.

## How it was made

    python -m serve_app.demo.training.train --seed {seed} --steps {steps_}

| | |
|---|---|
| Commit | `{commit}` |
| Seed | {seed} |
| Steps | {steps:,}{resumed} |
| Tokens read | {tokens:,} |
| Time | {hours} hours on {device} |
| Final loss | {loss:.4f} nats a token of the assistant, on fresh text, last 100 steps |
| Optimizer | Muon for the layers' matrices, AdamW for the rest, warm-up and cosine |
| Layers | {first} in the first {grown:.0%} of the run, then {layers} with heads that find \
tools (`serve_app/demo/training/heads.py`) and, until {chosen:.0%}, \
nothing but choices of tools |
| Skills | calls of tools are most of the text until {half:.0%}, and half of it from then on |
| First weights | random, but for two layers of heads that copy \
(`serve_app/demo/training/heads.py`) |
| Context | trained up to 1,024 tokens |
| Sampling | temperature 0.3, top-p 0.9, where a request does not say |

The weights depend on the seed, the number of threads and the processor: another machine gives
a model of the same kind, not the same bytes.{note}

## What it can do

Small talk, questions about itself and about Manta, sums to 100 with their steps, counting,
sorting, spelling, days and clocks, capitals, animals and colours, short stories, simple rewriting
(upper case, lists, JSON), system prompts that give it a name, facts or a form, a few phrases of
German, French, Spanish and Chinese, remembering what it was told in the conversation, thoughts
before the answer (`enable_thinking`), and calls of tools that it has never seen. How well it does
each of these the scores say; where they are low, it is wrong more often than right.

## What it cannot do

Everything else. Off its topics it should say that it is a tiny demo model; often it does, and
sometimes it gives a wrong answer in good English. Check whatever it says.

## Scores

Cases that its training never shows: other names, numbers, phrasings and tools
(`python -m serve_app.demo.evaluation.evaluate`). A phrasing that is held out from one skill may
be known from another. Tools are defined with `strict: true`, as OpenAI advises, so that the
server holds calls to the definitions; "tools, not strict" are the same cases without.

| skill | right | of | score |
|---|---|---|---|
{scores}

## Ten conversations

By `python -m serve_app.demo.evaluation.converse`, greedy, unedited.

{talks}
"""


def write_card(
    folder: Path,
    scores: Sequence[SkillScore],
    talks: Sequence[Sequence[dict[str, str]]],
    note: str = "",
) -> None:
    """The README.md of a model's folder, from what stands there and what was measured."""
    made = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    made |= {"steps_": made["steps"], "note": f" {note}" if note else ""}
    made |= {"first": DEMO.first_layers, "layers": DEMO.layers, "grown": GROWN, "chosen": CHOSEN}
    made["half"] = HALF
    at = ", ".join(f"{step:,}" for step in made["resumed"])
    made["resumed"] = f", resumed at {at}" if at else ""
    rows = [f"| {each.skill} | {each.right} | {each.total} | {each.share:.1%} |" for each in scores]
    told = [f"### {at}\n\n{_transcript(talk)}" for at, talk in enumerate(talks, 1)]
    text = CARD.format(scores="\n".join(rows), talks="\n\n".join(told), **made)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _transcript(talk: Sequence[dict[str, str]]) -> str:
    return "\n\n".join(_turn(message["role"], message["content"]) for message in talk)


def _turn(role: str, text: str) -> str:
    if role == "user":
        return f"**{text}**"
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the card of the demo model.")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--scores", type=Path, required=True, help="of evaluate --json")
    parser.add_argument("--talks", type=Path, required=True, help="of converse --out")
    parser.add_argument("--note", default="", help="what else there is to say of the training")
    args = parser.parse_args()
    scores = [SkillScore(**each) for each in json.loads(args.scores.read_text(encoding="utf-8"))]
    write_card(args.model, scores, json.loads(args.talks.read_text(encoding="utf-8")), args.note)


if __name__ == "__main__":
    main()
