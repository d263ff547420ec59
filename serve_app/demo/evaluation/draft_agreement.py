"""How often the draft says what the model says.

python -m serve_app.demo.evaluation.draft_agreement

Of the model's greedy answers to held-out cases, the share of tokens that the draft would have
drawn too: what speculative decoding has to gain.
"""

import argparse
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from serve_app.demo.model_files import DRAFT, MODEL, load
from serve_app.demo.training.corpus import Case, cases
from serve_app.demo.training.corpus.skills import EVALUATED

MAX_TOKENS = 100


def agreement(
    model: LlamaForCausalLM,
    draft: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    case: Case,
) -> tuple[int, int]:
    """Tokens on which they agree, and all tokens of the model's answer."""
    prompt = tokenizer.apply_chat_template(
        case.messages(),
        tools=case.described_tools(),
        enable_thinking=case.thinking,
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    greedy = {"do_sample": False, "temperature": None, "top_p": None}
    with torch.inference_mode():
        ids = model.generate(**prompt, max_new_tokens=MAX_TOKENS, **greedy)
        first = prompt["input_ids"].shape[1]
        guessed = draft(ids).logits[0, first - 1 : -1].argmax(-1)
    return int((guessed == ids[0, first:]).sum()), len(guessed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the draft with the demo model.")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--draft", type=Path, default=DRAFT)
    parser.add_argument("--cases", type=int, default=20, help="a skill, at most")
    args = parser.parse_args()
    disable_progress_bar()
    (model, tokenizer), (draft, _) = load(args.model), load(args.draft)
    table = Table("skill", "agreement", title="Tokens of the model that the draft says too")
    same = total = 0
    for skill in track(EVALUATED, "comparing", console=Console(stderr=True)):
        counts = [agreement(model, draft, tokenizer, case) for case in cases(skill, args.cases)]
        agreed, said = (sum(column) for column in zip(*counts, strict=True))
        same, total = same + agreed, total + said
        table.add_row(skill, f"{agreed / said:.1%}")
    table.add_row("all", f"{same / total:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
