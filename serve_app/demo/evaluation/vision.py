"""Scores the demo that sees on pictures and questions that it was never shown.

python -m serve_app.demo.evaluation.vision
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import LlavaForConditionalGeneration, LlavaProcessor
from transformers.utils.logging import disable_progress_bar

from deployments.text.reply import Reply
from serve_app.demo.evaluation.scoring import SkillScore, fits
from serve_app.demo.model_files import VISION, load_vision
from serve_app.demo.training.vision.corpus import EVALUATED, VisionCase, cases

CASES_A_KIND = 200
AT_ONCE = 25
MAX_TOKENS = 40
# what the model is meant to reach, where something is promised
GOALS = {
    "colours": 0.9,
    "shapes": 0.9,
    "counts to 5": 0.85,
    "positions": 0.85,
    "digits": 0.8,
}


@dataclass(frozen=True)
class AnsweredVisionCase:
    case: VisionCase
    text: str

    @property
    def is_right(self) -> bool:
        return fits(self.case.expect, Reply(self.text, "", ()))


def answers(
    model: LlavaForConditionalGeneration, processor: LlavaProcessor, asked: Sequence[VisionCase]
) -> list[AnsweredVisionCase]:
    """Greedy, all at once."""
    content = [[{"type": "image"}, {"type": "text", "text": case.question}] for case in asked]
    prompts = processor.apply_chat_template(
        [[{"role": "user", "content": parts}] for parts in content],
        add_generation_prompt=True,
        tokenize=False,
    )
    inputs = processor(
        text=prompts,
        images=[case.picture() for case in asked],
        padding=True,
        padding_side="left",
        return_tensors="pt",
    )
    greedy = {"do_sample": False, "temperature": None, "top_p": None}
    with torch.inference_mode():
        ids = model.generate(**inputs, max_new_tokens=MAX_TOKENS, **greedy)
    new = ids[:, inputs["input_ids"].shape[1] :]
    texts = processor.tokenizer.batch_decode(new, skip_special_tokens=True)
    return [AnsweredVisionCase(case, text.strip()) for case, text in zip(asked, texts, strict=True)]


def all_answers(folder: Path, a_kind: int) -> Iterator[AnsweredVisionCase]:
    model, processor = load_vision(folder)
    asked = [case for kind in EVALUATED for case in islice(cases(kind), a_kind)]
    groups = [asked[at : at + AT_ONCE] for at in range(0, len(asked), AT_ONCE)]
    for group in track(groups, "asking", console=Console(stderr=True)):
        yield from answers(model, processor, group)


def scores(found: Sequence[AnsweredVisionCase]) -> list[SkillScore]:
    by_kind = {
        kind: [each.is_right for each in found if each.case.kind == kind] for kind in EVALUATED
    }
    return [SkillScore(kind, sum(right), len(right)) for kind, right in by_kind.items()]


def table(results: Sequence[SkillScore]) -> Table:
    shown = Table(title="Held-out pictures")
    for heading in ("kind", "right", "of", "score", "goal"):
        shown.add_column(heading, justify="left" if heading == "kind" else "right")
    for each in results:
        goal = GOALS.get(each.skill)
        reached = "" if goal is None else f"{goal:.0%} {'✓' if each.share >= goal else '✗'}"
        shown.add_row(each.skill, str(each.right), str(each.total), f"{each.share:.1%}", reached)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description="Score the demo that sees on held-out pictures.")
    parser.add_argument("--model", type=Path, default=VISION)
    parser.add_argument("--cases", type=int, default=CASES_A_KIND, help="a kind")
    parser.add_argument("--wrong", type=int, default=0, help="wrong answers to show a kind")
    parser.add_argument("--json", type=Path, help="file for the scores")
    args = parser.parse_args()
    disable_progress_bar()
    found = list(all_answers(args.model, args.cases))
    results, console = scores(found), Console()
    console.print(table(results))
    for kind in EVALUATED:
        wrong = (each for each in found if each.case.kind == kind and not each.is_right)
        for each in islice(wrong, args.wrong):
            asked = each.case
            console.print(f"[{kind}] {asked.question!r}: wanted {asked.answer!r}", markup=False)
            console.print(f"    got {each.text!r}", markup=False)
    if args.json:
        text = json.dumps([asdict(each) for each in results], indent=1)
        args.json.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
