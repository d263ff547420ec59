"""Trains the demo that sees: first the tower, on what stands where, then all, on questions."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from serve_app.demo.model_files import DRAFT, VISION
from serve_app.demo.training.batches import ChatBatch, steps
from serve_app.demo.training.corpus.skills import LATE
from serve_app.demo.training.muon import Muon
from serve_app.demo.training.network import answer_loss, precision
from serve_app.demo.training.run import (
    SAVE_EVERY_S,
    Length,
    commit_hash,
    plot,
    progress_bar,
    rate_at,
)
from serve_app.demo.training.vision.batches import PICTURES
from serve_app.demo.training.vision.files import export, with_picture
from serve_app.demo.training.vision.network import (
    LANGUAGE,
    TOWER,
    Packed,
    SightNetwork,
    naming_loss,
    packed_loss,
    words_of,
)
from serve_app.demo.training.vision.prefetch import Asked, Named, Step, WantedPictures, prefetching
from serve_app.demo.training.vision.tower import looked_at

TEXT_TOKENS = 768  # of a step: chats without pictures, or the model would forget how to talk
NAMED = 0.35  # share of the run in which the tower alone learns
NAMING, TALKING = 0.3, 0.4  # weights of losses beside that of answers about pictures
TOWER_RATE, LANGUAGE_RATE, OTHER_RATE, EMBED_RATE = 0.02, 0.01, 2e-3, 1e-3
RECENT = 100  # steps the shown losses are means of

Part = Callable[[], Tensor]


@dataclass
class VisionState:
    network: SightNetwork
    tokenizer: PreTrainedTokenizerFast
    words: list[Tensor]  # as `words_of`
    optimizers: list[torch.optim.Optimizer]
    batch: int = PICTURES  # pictures of a batch
    step: int = 0
    pictures: int = 0
    seconds: float = 0.0
    named: list[float] = field(default_factory=list)  # losses of the tower alone
    losses: list[float] = field(default_factory=list)  # of answers about pictures
    resumed: list[int] = field(default_factory=list)  # at which steps

    @property
    def loss(self) -> float:
        recent = (self.losses or self.named)[-RECENT:]
        return sum(recent) / len(recent)


@dataclass(frozen=True)
class VisionRecord:
    """A record of what the weights were made of, which stands beside them."""

    commit: str
    seed: int
    steps: int
    pictures: int
    loss: float
    hours: float
    parameters: int
    resumed: list[int]


def optimizers_of(network: SightNetwork) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices; AdamW for what stands at both ends, norms and biases.

    What the draft has learned moves more slowly.
    """
    tower, language = network.tower, network.language
    # Muon twice, for two workers.
    qkv, out, *wide = tower.matrices()
    ends = [tower.patch, tower.first, tower.positions, network.head, *tower.projector]
    plain = [*tower.biases, tower.norms, tower.norm_biases, tower.projector_biases]
    others = [
        {"params": ends, "weight_decay": 0.01, "peak": OTHER_RATE},
        {"params": plain, "weight_decay": 0.0, "peak": OTHER_RATE},
        {"params": [language.embed], "weight_decay": 0.01, "peak": EMBED_RATE},
        {"params": [language.norms], "weight_decay": 0.0, "peak": EMBED_RATE},
    ]
    return [
        _muon([(alike, TOWER_RATE) for alike in wide]),
        _muon(
            [(alike, TOWER_RATE) for alike in (qkv, out)]
            + [(list(alike), LANGUAGE_RATE) for alike in language.matrices()]
        ),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), fused=True),
    ]


def _muon(matrices: Sequence[tuple[list[nn.Parameter], float]]) -> Muon:
    groups = [{"params": alike, "peak": rate} for alike, rate in matrices]
    return Muon(groups, lr=TOWER_RATE, weight_decay=0.01, dtype=precision(torch.device("cpu")))


def begin(seed: int) -> VisionState:
    tokenizer = with_picture(AutoTokenizer.from_pretrained(DRAFT))
    network = SightNetwork(TOWER, LANGUAGE, seed)
    network.take(LlamaForCausalLM.from_pretrained(DRAFT, dtype=torch.float32))
    return VisionState(network, tokenizer, words_of(tokenizer), optimizers_of(network))


def resume(state: VisionState, out: Path) -> None:
    saved: dict[str, Any] = torch.load(_checkpoint(out), weights_only=True)
    state.network.load_state_dict(saved["network"])
    for optimizer, kept in zip(state.optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    for name in ("step", "pictures", "seconds", "named", "losses"):
        setattr(state, name, saved[name])
    state.resumed = [*saved["resumed"], state.step]


def checkpoint(state: VisionState, out: Path) -> None:
    export(state.network, state.tokenizer, out)
    names = ("step", "pictures", "seconds", "named", "losses", "resumed")
    saved: dict[str, Any] = {name: getattr(state, name) for name in names}
    saved["network"] = state.network.state_dict()
    saved["optimizers"] = [optimizer.state_dict() for optimizer in state.optimizers]
    part = _checkpoint(out).with_suffix(".part")
    torch.save(saved, part)
    part.replace(_checkpoint(out))


def _checkpoint(out: Path) -> Path:
    return out / "checkpoint.pt"


def naming_parts(state: VisionState, pictures: Named) -> list[Part]:
    """A step of the tower alone."""
    network = state.network

    def part(pixels: Tensor, labels: Tensor) -> Tensor:
        seen = looked_at(network.tower, pixels)
        return naming_loss(network, seen, labels, state.words) / len(pictures.batches)

    return [partial(part, *each) for each in pictures.batches]


def asking_parts(state: VisionState, asked: Asked, share: float, talk: ChatBatch) -> list[Part]:
    """A step of all: answers about pictures, their patches, and chats without pictures."""
    network, batches = state.network, asked.batches
    counted = sum(batch.counted for batch in batches)
    said_tokens = talk.counted + asked.blind.counted
    weight = NAMING * (1 - share) / len(batches)

    def answered(batch: Packed) -> Tensor:
        seen = looked_at(network.tower, batch.pixels)
        answers = packed_loss(network, seen, batch) / counted
        return answers + weight * naming_loss(network, seen, batch.labels, state.words)

    def said(batch: ChatBatch) -> Tensor:
        return TALKING * answer_loss(network.language, batch.ids, batch.targets) / said_tokens

    return [
        *(partial(answered, batch) for batch in batches),
        partial(said, talk),
        partial(said, asked.blind),
    ]


def advance(
    state: VisionState,
    parts: Sequence[Part],
    rate: float,
    workers: ThreadPoolExecutor | None = None,
) -> list[float]:
    """One step on the sum of the parts' losses, which it returns.

    The workers take a part each; gradients are added in the parts' order, whoever is first.
    """
    learned = list(state.network.parameters())

    def loss_and_gradients(part: Part) -> tuple[float, Sequence[Tensor | None]]:
        loss = part()
        return loss.item(), torch.autograd.grad(loss, learned, allow_unused=True)

    losses, gradients = zip(
        *(workers.map if workers else map)(loss_and_gradients, parts), strict=True
    )
    for parameter, found in zip(learned, zip(*gradients, strict=True), strict=True):
        some = [gradient for gradient in found if gradient is not None]
        parameter.grad = sum(some[1:], start=some[0]) if some else None
    torch.nn.utils.clip_grad_norm_(learned, 1.0)

    def update(optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["peak"]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    list((workers.map if workers else map)(update, state.optimizers))
    state.step += 1
    return list(losses)


def talks(state: VisionState, seed: int) -> Iterator[ChatBatch]:
    for batches in steps(state.tokenizer, seed, len(state.losses), TEXT_TOKENS, 1, LATE):
        yield from batches


def wanted(state: VisionState, seed: int, share: float, ahead: int = 0) -> WantedPictures:
    return WantedPictures(seed, state.step + ahead, share < NAMED, state.batch)


def train(state: VisionState, length: Length, seed: int, out: Path, threads: int) -> None:
    console, talk = Console(stderr=True), talks(state, seed)
    with (
        prefetching() as draw,
        progress_bar(console) as progress,
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers,
    ):
        bar = progress.add_task("train", total=1.0, loss="", speed="")
        saved = state.seconds
        upcoming = draw(wanted(state, seed, length.share(state.step, state.seconds)))
        while (share := length.share(state.step, state.seconds)) < 1.0:
            started = time.perf_counter()
            drawn = upcoming.result()
            upcoming = draw(wanted(state, seed, share, ahead=1))
            learn(state, drawn, share, talk, workers)
            state.seconds += time.perf_counter() - started
            speed = f"{state.pictures / state.seconds:,.1f} pictures/s"
            shown = f"step {state.step:,}  loss {state.loss:.4f}"
            progress.update(bar, completed=share, loss=shown, speed=speed)
            if state.seconds - saved > SAVE_EVERY_S:
                checkpoint(state, out)
                saved = state.seconds
                console.log(f"{shown}, {speed}")


def learn(
    state: VisionState,
    drawn: Step,
    share: float,
    talk: Iterator[ChatBatch],
    workers: ThreadPoolExecutor | None,
) -> None:
    """One step, of whichever part of the run its pictures are for."""
    rate = rate_at(share, state.step)
    if isinstance(drawn, Named):
        state.named.append(sum(advance(state, naming_parts(state, drawn), rate, workers)))
    else:
        parts = asking_parts(state, drawn, share, next(talk))
        state.losses.append(sum(advance(state, parts, rate, workers)[: len(drawn.batches)]))
    state.pictures += drawn.pictures


def finish(state: VisionState, seed: int, out: Path, commit: str) -> None:
    export(state.network, state.tokenizer, out)
    record = VisionRecord(
        commit=commit,
        seed=seed,
        steps=state.step,
        pictures=state.pictures,
        loss=round(state.loss, 4),
        hours=round(state.seconds / 3600, 2),
        parameters=sum(weight.numel() for weight in state.network.parameters())
        - state.network.head.numel(),
        resumed=state.resumed,
    )
    text = json.dumps(asdict(record), indent=1)
    (out / "training.json").write_text(f"{text}\n", encoding="utf-8")
    plot(state.losses, out / "loss.png")
    _checkpoint(out).unlink(missing_ok=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the demo model that sees.")
    parser.add_argument("--hours", type=float, default=1.95, help="of training, at most")
    parser.add_argument("--steps", type=int, default=100_000, help="at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=VISION, help="folder of the model's files")
    parser.add_argument("--threads", type=int, help="CPU threads; default: torch's choice")
    parser.add_argument("--resume", action="store_true", help="continue OUT/checkpoint.pt")
    return parser.parse_args()


def main() -> None:
    # As Ctrl-C does: the process that draws ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    args, commit = arguments(), commit_hash()
    disable_progress_bar()  # of saving; the run has its own
    threads = args.threads or torch.get_num_threads()
    # The workers fill the cores. Here, threads of OpenMP would wait for each other in a busy loop.
    torch.set_num_threads(1)
    if args.resume and not _checkpoint(args.out).exists():
        sys.exit(f"nothing to resume: {_checkpoint(args.out)} does not exist")
    state = begin(args.seed)
    if args.resume:
        resume(state, args.out)
    train(state, Length(args.steps, 3600 * args.hours), args.seed, args.out, threads)
    finish(state, args.seed, args.out, commit)
