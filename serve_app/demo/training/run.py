"""A training run, whichever model it makes: its length and rates, its steps, and what it leaves.

The law: a step is a function of its lesson and of the state alone, so that a run that is resumed is
the run that was not interrupted.
"""

import argparse
import importlib
import importlib.util
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from serve_app.demo.training.muon import Muon
from serve_app.demo.training.network import precision

WARMUP = 100  # steps
FINAL = 0.02  # of the peak rates
SAVE_EVERY_S = 300.0
RECENT = 100  # steps the shown loss is a mean of
DECAY = 0.01
COUNTS = ("step", "seen", "seconds", "losses", "early_losses", "resumed")  # of a state, kept

N = TypeVar("N", bound=nn.Module)
Part = Callable[[], Tensor]


@dataclass(frozen=True)
class Length:
    """When the run ends: after so many steps, or after so many seconds, whichever is first."""

    steps: int
    seconds: float

    def share(self, state: "TrainingState[N]") -> float:
        """How much of the run is over, 0 to 1."""
        return min(1.0, max(state.step / self.steps, state.seconds / self.seconds))


@dataclass
class TrainingState(Generic[N]):
    network: N
    tokenizer: PreTrainedTokenizerFast
    optimizers: list[torch.optim.Optimizer]
    step: int = 0
    seen: int = 0  # tokens or pictures
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    early_losses: list[float] = field(default_factory=list)  # of what is learned before all else
    resumed: list[int] = field(default_factory=list)  # at which steps

    @property
    def loss(self) -> float:
        recent = (self.losses or self.early_losses)[-RECENT:]
        return sum(recent) / len(recent)


@dataclass(frozen=True)
class TrainingLesson:
    """The parts of a step, each of which computes a loss, and how much of the corpus they read."""

    parts: Sequence[Part]
    seen: int
    shown: int | None = None  # the losses to show: so many of the first parts; None for all
    is_early: bool = False


@dataclass(frozen=True)
class Recipe(Generic[N]):
    """The part of a training that is one model's own."""

    lessons: Callable[[TrainingState[N], Length, int], Generator[TrainingLesson]]  # by a seed
    export: Callable[[N, PreTrainedTokenizerFast, Path], None]
    unit: str  # of what is seen
    unkept: str = ""  # a weight that no file keeps


@dataclass(frozen=True)
class TrainingRecord:
    """A record of what the weights were made of, which stands beside them."""

    commit: str
    seed: int
    steps: int
    seen: int
    loss: float
    hours: float
    parameters: int
    device: str
    resumed: list[int]

    def text(self, unit: str) -> str:
        values = {unit if key == "seen" else key: value for key, value in asdict(self).items()}
        return f"{json.dumps(values, indent=1)}\n"


def rate_at(share: float, step: int) -> float:
    """Returns the share of the peak rate: a warm-up, then a cosine down to the end of the run."""
    warm = min(1.0, (step + 1) / WARMUP)
    return warm * (FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * share)))


def muon(
    device: torch.device, matrices: Sequence[tuple[Sequence[nn.Parameter], float]]
) -> torch.optim.Optimizer:
    """Returns Muon for groups of matrices of one shape, each with its peak rate."""
    groups = [{"params": [*alike], "peak": rate} for alike, rate in matrices]
    return Muon(groups, lr=matrices[0][1], weight_decay=DECAY, dtype=precision(device))


def adam(weights: Sequence[tuple[Sequence[nn.Parameter], float, float]]) -> torch.optim.Optimizer:
    """Returns AdamW for groups of weights, each with its decay and its peak rate."""
    groups = [
        {"params": [*alike], "weight_decay": decay, "peak": rate} for alike, decay, rate in weights
    ]
    return torch.optim.AdamW(groups, lr=weights[0][2], betas=(0.9, 0.95), fused=True)


def learn(
    state: TrainingState[N],
    lesson: TrainingLesson,
    rate: float,
    workers: ThreadPoolExecutor | None = None,
) -> None:
    """One step on the sum of the parts' losses.

    The workers take a part each; gradients are added in the parts' order, whoever is first.
    """
    learned = list(state.network.parameters())

    def loss_and_gradients(part: Part) -> tuple[float, Sequence[Tensor | None]]:
        loss = part()
        return loss.item(), torch.autograd.grad(loss, learned, allow_unused=True)

    def update(optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["peak"]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    each = workers.map if workers else map
    losses, gradients = zip(*each(loss_and_gradients, lesson.parts), strict=True)
    for parameter, found in zip(learned, zip(*gradients, strict=True), strict=True):
        some = [gradient for gradient in found if gradient is not None]
        parameter.grad = sum(some[1:], start=some[0]) if some else None
    torch.nn.utils.clip_grad_norm_(learned, 1.0)
    list(each(update, state.optimizers))
    state.step += 1
    state.seen += lesson.seen
    kept = state.early_losses if lesson.is_early else state.losses
    kept.append(sum(losses[: lesson.shown]))


def train(
    recipe: Recipe[N], state: TrainingState[N], length: Length, seed: int, out: Path, threads: int
) -> None:
    columns = "{task.percentage:>3.0f}%  {task.fields[loss]}  {task.fields[speed]}"
    console, bar = Console(stderr=True), (BarColumn(), TextColumn(columns), TimeRemainingColumn())
    # A part a thread: most operations are too small to be worth parting among threads.
    with (
        closing(recipe.lessons(state, length, seed)) as lessons,
        Progress(*bar, console=console) as progress,
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers,
    ):
        task = progress.add_task("train", total=1.0, loss="", speed="")
        saved, started = state.seconds, time.perf_counter()
        for lesson in lessons:
            share = length.share(state)
            learn(state, lesson, rate_at(share, state.step), workers)
            state.seconds += time.perf_counter() - started
            speed = f"{state.seen / state.seconds:,.1f} {recipe.unit}/s"
            shown = f"step {state.step:,}  loss {state.loss:.4f}"
            progress.update(task, completed=share, loss=shown, speed=speed)
            if state.seconds - saved > SAVE_EVERY_S:
                checkpoint(recipe, state, out)
                saved = state.seconds
                console.log(f"{shown}, {speed}")
            started = time.perf_counter()


def checkpoint(recipe: Recipe[N], state: TrainingState[N], out: Path) -> None:
    recipe.export(state.network, state.tokenizer, out)
    saved: dict[str, Any] = {name: getattr(state, name) for name in COUNTS}
    saved["network"] = state.network.state_dict()
    saved["optimizers"] = [optimizer.state_dict() for optimizer in state.optimizers]
    part = _checkpoint(out).with_suffix(".part")
    torch.save(saved, part)
    part.replace(_checkpoint(out))


def resume(state: TrainingState[N], out: Path) -> None:
    saved: dict[str, Any] = torch.load(_checkpoint(out), weights_only=True)
    state.network.load_state_dict(saved["network"])
    for optimizer, kept in zip(state.optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    for name in COUNTS:
        setattr(state, name, saved[name])
    state.resumed = [*state.resumed, state.step]


def _checkpoint(out: Path) -> Path:
    return out / "checkpoint.pt"


def finish(recipe: Recipe[N], state: TrainingState[N], seed: int, out: Path, commit: str) -> None:
    recipe.export(state.network, state.tokenizer, out)
    weights = dict(state.network.named_parameters())
    record = TrainingRecord(
        commit=commit,
        seed=seed,
        steps=state.step,
        seen=state.seen,
        loss=round(state.loss, 4),
        hours=round(state.seconds / 3600, 2),
        parameters=sum(w.numel() for name, w in weights.items() if name != recipe.unkept),
        device=str(next(iter(weights.values())).device),
        resumed=state.resumed,
    )
    (out / "training.json").write_text(record.text(recipe.unit), encoding="utf-8")
    plot(state.losses, out / "loss.png")
    _checkpoint(out).unlink(missing_ok=True)


def plot(losses: Sequence[float], path: Path) -> None:
    """The curve as a picture, where matplotlib is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    axes.plot(losses, linewidth=0.5)
    axes.set(xlabel="step", ylabel="loss, nats a token of the assistant", yscale="log")
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def commit_hash() -> str:
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def arguments(description: str, out: Path) -> argparse.ArgumentParser:
    """The arguments of every training; `out` is where its model's files are by default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--hours", type=float, default=1.95, help="of training, at most")
    parser.add_argument("--steps", type=int, default=100_000, help="at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=out, help="folder of the model's files")
    parser.add_argument("--threads", type=int, help="CPU threads; default: torch's choice")
    parser.add_argument("--resume", action="store_true", help="continue OUT/checkpoint.pt")
    return parser


def run(recipe: Recipe[N], args: argparse.Namespace, begin: Callable[[], TrainingState[N]]) -> None:
    """Trains from a first state, or from a checkpoint, to a model's files."""
    # As Ctrl-C does: a process that draws ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    commit, threads = commit_hash(), args.threads or torch.get_num_threads()
    disable_progress_bar()  # of saving; the run has its own
    # The workers fill the cores. Here, threads of OpenMP would wait for each other in a busy loop.
    torch.set_num_threads(1)
    if args.resume and not _checkpoint(args.out).exists():
        sys.exit(f"nothing to resume: {_checkpoint(args.out)} does not exist")
    state = begin()
    if args.resume:
        resume(state, args.out)
    train(recipe, state, Length(args.steps, 3600 * args.hours), args.seed, args.out, threads)
    finish(recipe, state, args.seed, args.out, commit)
