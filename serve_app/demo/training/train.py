"""Trains the demo model from nothing: `python -m serve_app.demo.training.train`."""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, TaskID
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from serve_app.demo.model_files import MODEL
from serve_app.demo.training.batches import ChatBatch, steps
from serve_app.demo.training.copy_heads import prime
from serve_app.demo.training.corpus import talks
from serve_app.demo.training.corpus.skills import EARLY, LATE
from serve_app.demo.training.lookup_heads import install
from serve_app.demo.training.muon import Muon
from serve_app.demo.training.network import (
    DEMO,
    DRAFT,
    Network,
    NetworkShape,
    answer_loss,
    export,
    precision,
)
from serve_app.demo.training.run import (
    SAVE_EVERY_S,
    Length,
    commit_hash,
    plot,
    progress_bar,
    rate_at,
)
from serve_app.demo.training.tokenizer import ANSWER, END, NAME, TOOLS_END, encoded, train_tokenizer

TOKENS_A_BATCH = 2048
# Small steps learn most at first; later they disturb more than they teach.
FIRST_BATCHES, LATER_BATCHES, LATER = 2, 4, 0.35  # of a step; from which share of the run on
MATRIX_RATE, OTHER_RATE = 0.02, 3e-3
# At first few layers learn as much from a token, in less time. The other layers begin with
# `lookup_heads`, which training would lose again without some text at first that needs only them.
GROWN, CHOSEN = 0.3, 0.35  # shares of the run: from the first on all layers, to the second CHOICES
CHOICES = {"choices": 1.0}
HALF = 0.5  # from which share of the run on skills are drawn as LATE says
LOOKED_AT = ("calls", "choices", "conversations with tools")
LOOKED_AT_CHATS = 50  # of each
RECENT = 100  # steps the shown loss is a mean of


@dataclass
class TrainingState:
    network: Network
    tokenizer: PreTrainedTokenizerFast
    optimizers: list[torch.optim.Optimizer]
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)  # at which steps

    @property
    def loss(self) -> float:
        recent = self.losses[-RECENT:]
        return sum(recent) / len(recent)


@dataclass(frozen=True)
class TrainingRecord:
    """A record of what the weights were made of, which stands beside them."""

    commit: str
    seed: int
    steps: int
    tokens: int
    loss: float
    hours: float
    parameters: int
    device: str
    resumed: list[int]


def reading_at(share: float) -> tuple[int, Mapping[str, float]]:
    """Batches of a step, each of TOKENS_A_BATCH, and how often each skill is drawn for them."""
    batches = FIRST_BATCHES if share < LATER else LATER_BATCHES
    if GROWN <= share < CHOSEN:
        return batches, CHOICES
    return batches, EARLY if share < HALF else LATE


def optimizers_of(network: Network) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices; AdamW for the embeddings and, without decay, the norms."""
    others = [
        {"params": [network.embed], "weight_decay": 0.01},
        {"params": [network.norms], "weight_decay": 0.0},
    ]
    matrices = [{"params": list(alike)} for alike in network.matrices()]
    dtype = precision(network.embed.device)
    return [
        Muon(matrices, lr=MATRIX_RATE, weight_decay=0.01, dtype=dtype),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), fused=True),
    ]


PEAKS = (MATRIX_RATE, OTHER_RATE)


def begin(
    shape: NetworkShape, seed: int, tokenizer: PreTrainedTokenizerFast, device: str
) -> TrainingState:
    network = Network(shape, seed)
    prime(network, seed)
    network = network.to(device)
    return TrainingState(network, tokenizer, optimizers_of(network))


def resume(state: TrainingState, out: Path) -> None:
    saved: dict[str, Any] = torch.load(_checkpoint(out), weights_only=True)
    state.network.load_state_dict(saved["network"])
    state.network.used = saved["used"]
    for optimizer, kept in zip(state.optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    state.step, state.tokens = saved["step"], saved["tokens"]
    state.seconds, state.losses = saved["seconds"], saved["losses"]
    state.resumed = [*saved["resumed"], state.step]


def checkpoint(state: TrainingState, out: Path) -> None:
    export(state.network, state.tokenizer, out)
    saved = {
        "network": state.network.state_dict(),
        "used": state.network.used,
        "optimizers": [optimizer.state_dict() for optimizer in state.optimizers],
        "step": state.step,
        "tokens": state.tokens,
        "seconds": state.seconds,
        "losses": state.losses,
        "resumed": state.resumed,
    }
    part = _checkpoint(out).with_suffix(".part")
    torch.save(saved, part)
    part.replace(_checkpoint(out))


def _checkpoint(out: Path) -> Path:
    return out / "checkpoint.pt"


def advance(
    state: TrainingState,
    batches: list[ChatBatch],
    rate: float,
    workers: ThreadPoolExecutor | None = None,
) -> None:
    """One step on the mean loss over all targets of its batches.

    The workers take a batch each; gradients are added in the batches' order, whoever is first.
    """
    counted = sum(batch.counted for batch in batches)

    def loss_and_gradients(batch: ChatBatch) -> tuple[Tensor, Sequence[Tensor]]:
        return _gradients(state.network, batch, counted)

    losses, gradients = zip(
        *(workers.map if workers else map)(loss_and_gradients, batches), strict=True
    )
    for parameter, parts in zip(state.network.learned(), zip(*gradients, strict=True), strict=True):
        parameter.grad = sum(parts[1:], start=parts[0])
    torch.nn.utils.clip_grad_norm_(state.network.parameters(), 1.0)
    for optimizer, peak in zip(state.optimizers, PEAKS, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * peak
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    state.step += 1
    state.tokens += sum(batch.tokens for batch in batches)
    state.losses.append(float(sum(losses)))


def _gradients(network: Network, batch: ChatBatch, counted: int) -> tuple[Tensor, Sequence[Tensor]]:
    device = network.embed.device
    loss = answer_loss(network, batch.ids.to(device), batch.targets.to(device)) / counted
    return loss.detach(), torch.autograd.grad(loss, network.learned())


def grow(state: TrainingState, seed: int) -> None:
    """Uses all layers from now on."""
    some = [
        chat
        for name in LOOKED_AT
        for chat in islice(talks(f"{seed} {name}", name), LOOKED_AT_CHATS)
    ]
    texts = [ids for ids, _ in encoded(state.tokenizer, some)]
    begun, end = state.tokenizer([f"{END}\n{ANSWER}<tool_call>\n{NAME}", TOOLS_END])["input_ids"]
    install(state.network, texts, begun, *end)


def train(state: TrainingState, length: Length, seed: int, out: Path, threads: int) -> None:
    reading: tuple[int, Mapping[str, float]] = 0, {}
    console = Console(stderr=True)
    # A batch a thread: most operations are too small to be worth parting among threads.
    with (
        progress_bar(console) as progress,
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers,
    ):
        bar = progress.add_task("train", total=1.0, loss="", speed="")
        saved = state.seconds
        while (share := length.share(state.step, state.seconds)) < 1.0:
            if reading != reading_at(share):
                reading = reading_at(share)
                source = steps(state.tokenizer, seed, state.step, TOKENS_A_BATCH, *reading)
            started = time.perf_counter()
            if share >= GROWN and len(state.network.used) < state.network.shape.layers:
                grow(state, seed)
            advance(state, next(source), rate_at(share, state.step), workers)
            state.seconds += time.perf_counter() - started
            _show(progress, bar, state, length)
            if state.seconds - saved > SAVE_EVERY_S:
                checkpoint(state, out)
                saved = state.seconds
                console.log(f"step {state.step:,}: loss {state.loss:.4f}")


def _show(progress: Progress, bar: TaskID, state: TrainingState, length: Length) -> None:
    speed = f"{state.tokens / state.seconds:,.0f} tokens/s"
    shown = f"step {state.step:,}  loss {state.loss:.4f}"
    progress.update(bar, completed=length.share(state.step, state.seconds), loss=shown, speed=speed)


def finish(state: TrainingState, seed: int, out: Path, commit: str) -> None:
    export(state.network, state.tokenizer, out)
    record = TrainingRecord(
        commit=commit,
        seed=seed,
        steps=state.step,
        tokens=state.tokens,
        loss=round(state.loss, 4),
        hours=round(state.seconds / 3600, 2),
        parameters=sum(weight.numel() for weight in state.network.parameters()),
        device=str(state.network.embed.device),
        resumed=state.resumed,
    )
    text = json.dumps(asdict(record), indent=1)
    (out / "training.json").write_text(f"{text}\n", encoding="utf-8")
    plot(state.losses, out / "loss.png")
    _checkpoint(out).unlink(missing_ok=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the demo model from scratch.")
    parser.add_argument("--hours", type=float, default=1.95, help="of training, at most")
    parser.add_argument("--steps", type=int, default=100_000, help="at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=MODEL, help="folder of the model's files")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="CPU threads; default: torch's choice")
    parser.add_argument("--resume", action="store_true", help="continue OUT/checkpoint.pt")
    parser.add_argument("--draft", type=Path, metavar="MODEL", help="a small one for this model")
    return parser.parse_args()


def main() -> None:
    args, commit = arguments(), commit_hash()
    disable_progress_bar()  # of saving; the run has its own
    threads = args.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    if args.resume and not _checkpoint(args.out).exists():
        sys.exit(f"nothing to resume: {_checkpoint(args.out)} does not exist")
    known = args.draft or (args.out if args.resume else None)
    tokenizer = AutoTokenizer.from_pretrained(known) if known else train_tokenizer(args.seed)
    state = begin(DRAFT if args.draft else DEMO, args.seed, tokenizer, args.device)
    if args.resume:
        resume(state, args.out)
    train(state, Length(args.steps, 3600 * args.hours), args.seed, args.out, threads)
    finish(state, args.seed, args.out, commit)


if __name__ == "__main__":
    main()
