"""Trains the demo model from nothing: `python -m serve_app.demo.train`."""

import argparse
import importlib
import importlib.util
import math
import sys
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from serve_app.demo.ask import MODEL, load
from serve_app.demo.batches import batches
from serve_app.demo.card import Run, write_card
from serve_app.demo.network import answer_loss, export, fresh
from serve_app.demo.vocabulary import train_tokenizer

TOKENS_A_STEP = 2048
PEAK_RATE, FINAL_RATE, WARMUP = 1.5e-3, 1e-5, 100
COOLDOWN = 0.5  # of all steps
STEPS_A_CHECKPOINT = 100
RECENT = 100  # steps the shown loss is a mean of


@dataclass
class State:
    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast
    optimizer: torch.optim.AdamW
    step: int = 0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)

    @property
    def loss(self) -> float:
        recent = self.losses[-RECENT:]
        return sum(recent) / len(recent)


def rate_at(step: int, steps: int) -> float:
    """Warmup, a plateau, and a cosine down over the last part of the run.

    The plateau lets an unfinished run be resumed with other `steps` and yet equal a straight one.
    """
    if step < WARMUP:
        return PEAK_RATE * (step + 1) / WARMUP
    left = min(1.0, (steps - step) / (COOLDOWN * steps))
    return FINAL_RATE + (PEAK_RATE - FINAL_RATE) * 0.5 * (1 - math.cos(math.pi * left))


def optimizer_of(model: LlamaForCausalLM) -> torch.optim.AdamW:
    """Norm weights do not decay."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95), fused=True)


def begin(seed: int) -> State:
    tokenizer = train_tokenizer(seed)
    model = fresh(tokenizer, seed)
    return State(model, tokenizer, optimizer_of(model))


def resumed(out: Path, seed: int) -> State:
    saved: dict[str, Any] = torch.load(_checkpoint(out), weights_only=True)
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = fresh(tokenizer, seed)
    model.load_state_dict(saved["model"])
    optimizer = optimizer_of(model)
    optimizer.load_state_dict(saved["optimizer"])
    return State(model, tokenizer, optimizer, saved["step"], saved["tokens"], saved["losses"])


def checkpoint(state: State, out: Path) -> None:
    export(state.model, state.tokenizer, out)
    saved = {
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "step": state.step,
        "tokens": state.tokens,
        "losses": state.losses,
    }
    part = _checkpoint(out).with_suffix(".part")
    torch.save(saved, part)
    part.replace(_checkpoint(out))


def _checkpoint(out: Path) -> Path:
    return out / "checkpoint.pt"


def advance(state: State, ids: torch.Tensor, targets: torch.Tensor, rate: float) -> None:
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    loss = answer_loss(state.model, ids, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    state.step += 1
    state.losses.append(loss.item())


def train(state: State, steps: int, seed: int, out: Path) -> None:
    console = Console(stderr=True)
    source = batches(state.tokenizer, seed, state.step, TOKENS_A_STEP)
    started, first = time.perf_counter(), state.tokens
    with _progress(console) as progress:
        bar = progress.add_task("train", total=steps, completed=state.step, loss="", speed="")
        for batch in islice(source, steps - state.step):
            advance(state, batch.ids, batch.targets, rate_at(state.step, steps))
            state.tokens += batch.tokens
            speed = f"{(state.tokens - first) / (time.perf_counter() - started):,.0f} tokens/s"
            progress.update(bar, advance=1, loss=f"loss {state.loss:.3f}", speed=speed)
            if state.step % STEPS_A_CHECKPOINT == 0:
                checkpoint(state, out)
                console.log(f"step {state.step:,}: loss {state.loss:.3f}, {speed}")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.completed:,}/{task.total:,}"),
        BarColumn(),
        TextColumn("{task.fields[loss]}  {task.fields[speed]}"),
        TimeRemainingColumn(),
        console=console,
    )


def finish(state: State, seed: int, out: Path) -> None:
    export(state.model, state.tokenizer, out)
    command = f"python -m serve_app.demo.train --steps {state.step} --seed {seed}"
    run = Run(command, seed, state.step, state.tokens, state.loss)
    model, tokenizer = load(out)  # the card shows what the files answer
    write_card(model, tokenizer, run, out / "README.md")
    plot(state.losses, out / "loss.png")
    _checkpoint(out).unlink(missing_ok=True)


def plot(losses: list[float], path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        return
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    figure.savefig(path)
    pyplot.close(figure)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the demo model from scratch.")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=MODEL, help="folder of the model's files")
    parser.add_argument("--threads", type=int, help="CPU threads; default: torch's choice")
    parser.add_argument("--resume", action="store_true", help="continue OUT/checkpoint.pt")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    disable_progress_bar()  # of saving; the run has its own
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.resume and not _checkpoint(args.out).exists():
        sys.exit(f"nothing to resume: {_checkpoint(args.out)} does not exist")
    state = resumed(args.out, args.seed) if args.resume else begin(args.seed)
    train(state, args.steps, args.seed, args.out)
    finish(state, args.seed, args.out)


if __name__ == "__main__":
    main()
