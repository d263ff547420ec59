"""Trains the demo that sees: first the tower, on what stands where, then all, on questions."""

from collections.abc import Generator
from functools import partial

import torch
from torch import Tensor
from transformers import AutoTokenizer, LlamaForCausalLM

from serve_app.demo.model_files import DRAFT, VISION
from serve_app.demo.training.batches import ChatBatch, steps
from serve_app.demo.training.corpus.skills import LATE
from serve_app.demo.training.network import answer_loss
from serve_app.demo.training.run import (
    DECAY,
    Length,
    Recipe,
    TrainingLesson,
    TrainingState,
    adam,
    arguments,
    muon,
    run,
)
from serve_app.demo.training.vision.batches import PictureStep, prefetching
from serve_app.demo.training.vision.files import export, with_picture
from serve_app.demo.training.vision.network import (
    LANGUAGE,
    TOWER,
    Packed,
    SightNetwork,
    looked_at,
    naming_loss,
    packed_loss,
    words_of,
)

TEXT_TOKENS = 768  # of a step: chats without pictures, or the model would forget how to talk
NAMED = 0.35  # share of the run in which the tower alone learns
NAMING, TALKING = 0.3, 0.4  # weights of losses beside that of answers about pictures
TOWER_RATE, LANGUAGE_RATE, OTHER_RATE, EMBED_RATE = 0.02, 0.01, 2e-3, 1e-3


def optimizers_of(network: SightNetwork) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices; AdamW for what stands at both ends, norms and biases.

    What the draft has learned moves more slowly.
    """
    tower, language = network.tower, network.language
    qkv, out, *wide = [(alike, TOWER_RATE) for alike in tower.matrices()]
    learned = [(list(alike), LANGUAGE_RATE) for alike in language.matrices()]
    ends = [tower.patch, tower.first, tower.positions, network.head, *tower.projector]
    plain = [*tower.biases, tower.norms, tower.norm_biases, tower.projector_biases]
    others = [
        (ends, DECAY, OTHER_RATE),
        (plain, 0.0, OTHER_RATE),
        ([language.embed], DECAY, EMBED_RATE),
        ([language.norms], 0.0, EMBED_RATE),
    ]
    where = language.embed.device
    # Muon twice, for two workers.
    return [muon(where, wide), muon(where, [qkv, out, *learned]), adam(others)]


def begin(seed: int) -> TrainingState[SightNetwork]:
    tokenizer = with_picture(AutoTokenizer.from_pretrained(DRAFT))
    network = SightNetwork(TOWER, LANGUAGE, seed)
    network.take(LlamaForCausalLM.from_pretrained(DRAFT, dtype=torch.float32))
    return TrainingState(network, tokenizer, optimizers_of(network))


class SightLessons:
    """The lessons of a state, each from the pictures that were drawn for it."""

    def __init__(self, state: TrainingState[SightNetwork], seed: int) -> None:
        self.network, self.words = state.network, words_of(state.tokenizer)
        talks = steps(state.tokenizer, seed, len(state.losses), TEXT_TOKENS, 1, LATE)
        self.talks = (batch for batches in talks for batch in batches)

    def lesson(self, drawn: PictureStep, share: float) -> TrainingLesson:
        """A lesson of the tower alone; later of answers, patches and chats without pictures."""
        each, blind = len(drawn.batches), drawn.blind
        if blind is None:
            parts = [partial(self._named, batch, 1 / each) for batch in drawn.batches]
            return TrainingLesson(parts, drawn.pictures, is_early=True)
        talks = (next(self.talks), blind)
        counted = sum(batch.counted for batch in drawn.batches)
        said_tokens = sum(talk.counted for talk in talks)
        weight = NAMING * (1 - share) / each
        parts = [partial(self._answered, batch, counted, weight) for batch in drawn.batches]
        parts += [partial(self._said, talk, said_tokens) for talk in talks]
        return TrainingLesson(parts, drawn.pictures, shown=each)

    def _named(self, batch: Packed, weight: float) -> Tensor:
        seen = looked_at(self.network.tower, batch.pixels)
        return weight * naming_loss(self.network, seen, batch.labels, self.words)

    def _answered(self, batch: Packed, counted: int, weight: float) -> Tensor:
        seen = looked_at(self.network.tower, batch.pixels)
        answers = packed_loss(self.network, seen, batch) / counted
        return answers + weight * naming_loss(self.network, seen, batch.labels, self.words)

    def _said(self, batch: ChatBatch, counted: int) -> Tensor:
        return TALKING * answer_loss(self.network.language, batch.ids, batch.targets) / counted


def lessons(
    state: TrainingState[SightNetwork], length: Length, seed: int
) -> Generator[TrainingLesson]:
    made = SightLessons(state, seed)
    with prefetching(seed) as draw:
        upcoming = draw(state.step, length.share(state) >= NAMED)
        while (share := length.share(state)) < 1.0:
            drawn = upcoming.result()
            upcoming = draw(state.step + 1, share >= NAMED)
            yield made.lesson(drawn, share)


RECIPE = Recipe(lessons, export, "pictures", unkept="head")


def main() -> None:
    args = arguments("Train the demo model that sees.", VISION).parse_args()
    run(RECIPE, args, lambda: begin(args.seed))
