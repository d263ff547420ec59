"""The card of the demo that sees: how it was made, its scores, and pictures with what it said.

python -m serve_app.demo.evaluation.vision_card --scores scores.json
"""

import argparse
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from serve_app.demo.evaluation.scoring import SkillScore
from serve_app.demo.evaluation.vision import AnsweredVisionCase, answers
from serve_app.demo.model_files import VISION, load_vision
from serve_app.demo.training.vision.corpus import EVALUATED, cases
from serve_app.demo.training.vision.network import LANGUAGE, TOWER
from serve_app.demo.training.vision.train import NAMED

EXAMPLE_SEED = 1  # other pictures than the scored ones
CARD = """\
# Manta demo model that sees

A tiny LLaVA ({parameters:,} parameters, bfloat16): a CLIP tower trained from scratch, a projector,
and [the draft of the demo](../draft/README.md) as its language model. All pictures are drawn by
`serve_app/demo/training/vision/`: no foreign weights, no foreign data. It is there so that
pictures can be tried at once, with nothing to download. It is no model to work with.

## How it was made

    python -m serve_app.demo.training.vision --seed {seed} --steps {steps_}

| | |
|---|---|
| Commit | `{commit}` |
| Seed | {seed} |
| Steps | {steps:,}{resumed} |
| Pictures seen | {pictures:,} |
| Time | {hours} hours on CPU |
| Final loss | {loss:.4f} nats a token of the answers, last 100 steps{curve} |
| Pictures | {side} x {side} pixels, patches of {patch}: {tokens} tokens each |
| Tower | {tower_layers} layers of {tower_hidden}; in the first {named:.0%} of the run it learns \
alone, to name what is in each patch, where it lies and how many there are |
| Language model | {layers} layers of {hidden}, {draft_layers} of them the draft's |

## What it can do

It tells shapes (circle, square, triangle, star, heart, diamond, cross, ring) and their colours,
counts up to five of them, says where they are, reads numbers of up to three digits and some sixty
short words, and finds the tallest and the shortest of up to five bars. One picture a conversation,
and a few questions about it.

## What it cannot do

Everything else: photographs, sentences, faces, two pictures at once. It then names shapes that are
not there.

## Scores

Pictures and questions that its training never shows (`python -m serve_app.demo.evaluation.vision`):
other pairs of shape and colour, other numbers, other rows of bars, other wordings. All words are
known from training, in other colours.

| kind | right | of | score |
|---|---|---|---|
{scores}

## Pictures

Held-out ones, one of each kind, greedy answers, unedited.

| picture | question | answer |
|---|---|---|
{examples}
"""


def write_card(
    folder: Path, scores: Sequence[SkillScore], examples: Sequence[AnsweredVisionCase]
) -> None:
    """The README.md of the model's folder, and the pictures that it shows."""
    made = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    at = ", ".join(f"{step:,}" for step in made["resumed"])
    made |= {"steps_": made["steps"], "resumed": f", resumed at {at}" if at else ""}
    made["curve"] = (
        " ([curve](loss.png) from the first question on)" if (folder / "loss.png").exists() else ""
    )
    made |= {"side": TOWER.side, "patch": TOWER.patch, "tokens": TOWER.patches, "named": NAMED}
    made |= {"tower_layers": TOWER.layers, "tower_hidden": TOWER.hidden}
    made |= {"layers": LANGUAGE.layers, "hidden": LANGUAGE.hidden}
    made["draft_layers"] = LANGUAGE.layers - 1
    rows = [f"| {each.skill} | {each.right} | {each.total} | {each.share:.1%} |" for each in scores]
    shown = [_example(folder, at, each) for at, each in enumerate(examples, 1)]
    text = CARD.format(scores="\n".join(rows), examples="\n".join(shown), **made)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _example(folder: Path, at: int, example: AnsweredVisionCase) -> str:
    name = f"example_{at}.png"
    example.case.picture().save(folder / name, optimize=True)
    mark = "" if example.is_right else f" (wrong: {example.case.answer})"
    return f"| ![{example.case.kind}]({name}) | {example.case.question} | {example.text}{mark} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the card of the demo that sees.")
    parser.add_argument("--model", type=Path, default=VISION)
    parser.add_argument("--scores", type=Path, required=True, help="of evaluation.vision --json")
    args = parser.parse_args()
    disable_progress_bar()
    asked = [case for kind in EVALUATED for case in islice(cases(kind, EXAMPLE_SEED), 1)]
    examples = answers(*load_vision(args.model), asked)
    scores = [SkillScore(**each) for each in json.loads(args.scores.read_text(encoding="utf-8"))]
    write_card(args.model, scores, examples)


if __name__ == "__main__":
    main()
