"""Scores the demo model on what it was never shown.

python -m serve_app.demo.evaluation.evaluate
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from serve_app.demo.evaluation.answering import in_process, over_http
from serve_app.demo.evaluation.scoring import (
    AnsweredCase,
    SkillScore,
    expected_calls,
    made_calls,
    scores,
)
from serve_app.demo.model_files import MODEL
from serve_app.demo.training.corpus import Case, cases
from serve_app.demo.training.corpus.skills import EVALUATED

CASES_A_SKILL = 200
LAX = "tools, not strict"
# what the model is meant to reach, where something is promised
GOALS = {
    "Manta": 0.9,
    "small talk": 0.9,
    "days and clocks": 0.9,
    "capitals": 0.9,
    "arithmetic": 0.8,
    "memory": 0.8,
    "instructions": 0.8,
    "tools": 0.85,
    "decisions whether to call": 0.9,
}


def all_cases(a_skill: int, skills: Sequence[str] = ()) -> list[Case]:
    """Tools are asked for strictly, as OpenAI advises; once more without, for comparison."""
    drawn = [case for skill in skills or EVALUATED for case in cases(skill, a_skill)]
    lax = [replace(case, skill=LAX) for case in drawn if case.skill == "tools"]
    return [replace(case, strict=bool(case.tools)) for case in drawn] + lax


def table(results: Sequence[SkillScore]) -> Table:
    shown = Table(title="Held-out cases")
    for heading in ("skill", "right", "of", "score", "goal"):
        shown.add_column(heading, justify="left" if heading == "skill" else "right")
    for each in results:
        goal = GOALS.get(each.skill)
        reached = "" if goal is None else f"{goal:.0%} {'✓' if each.share >= goal else '✗'}"
        shown.add_row(each.skill, str(each.right), str(each.total), f"{each.share:.1%}", reached)
    return shown


def show_wrong(console: Console, answered: Sequence[AnsweredCase], count: int) -> None:
    seen: dict[str, int] = {}
    for each in answered:
        skill = each.case.skill
        if each.is_right or seen.setdefault(skill, 0) >= count:
            continue
        seen[skill] += 1
        reply = each.reply
        wanted = expected_calls(each.case) or each.case.expect
        console.print(f"[{skill}] {each.case.turns[-1].text!r}", markup=False)
        console.print(f"    wanted {wanted}", markup=False)
        said = made_calls(reply) or reply.content
        console.print(f"    got    {said!r} thought {reply.thought!r}", markup=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Score the demo model on held-out cases.")
    parser.add_argument("--model", type=Path, default=MODEL, help="folder to run in this process")
    parser.add_argument("--url", help="of a server to ask instead, such as http://127.0.0.1:8000")
    parser.add_argument("--name", default="manta-demo", help="of the model at the URL")
    parser.add_argument("--key", default="none", help="for the URL")
    parser.add_argument("--cases", type=int, default=CASES_A_SKILL, help="a skill, at most")
    parser.add_argument("--skill", action="append", choices=list(EVALUATED), default=[])
    parser.add_argument("--wrong", type=int, default=0, help="wrong answers to show a skill")
    parser.add_argument("--json", type=Path, help="file for the scores")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    console = Console()
    asked = all_cases(args.cases, args.skill)
    replies: Iterator[AnsweredCase] = (
        over_http(args.url, args.name, args.key, asked)
        if args.url
        else in_process(str(args.model), asked)
    )
    progress = track(replies, "asking", total=len(asked), console=Console(stderr=True))
    order = {id(case): at for at, case in enumerate(asked)}
    answered = sorted(progress, key=lambda each: order[id(each.case)])
    results = scores(answered)
    console.print(table(results))
    show_wrong(console, answered, args.wrong)
    if args.json:
        text = json.dumps([asdict(each) for each in results], indent=1)
        args.json.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
