"""Trains the demo model from nothing: `python -m serve_app.demo.training.train`."""

from collections.abc import Generator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from serve_app.demo.model_files import MODEL
from serve_app.demo.training.batches import ChatBatch, steps
from serve_app.demo.training.corpus import talks
from serve_app.demo.training.corpus.skills import EARLY, LATE
from serve_app.demo.training.heads import install, prime
from serve_app.demo.training.network import DEMO, DRAFT, Network, NetworkShape, answer_loss, export
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
from serve_app.demo.training.tokenizer import ANSWER, END, NAME, TOOLS_END, encoded, train_tokenizer

TOKENS_A_BATCH = 2048
# Small steps learn most at first; later they disturb more than they teach.
FIRST_BATCHES, LATER_BATCHES, LATER = 2, 4, 0.35  # of a step; from which share of the run on
MATRIX_RATE, OTHER_RATE = 0.02, 3e-3
# At first few layers learn as much from a token, in less time. The other layers begin with
# the heads of `install`, which training would lose again without text that needs only them.
GROWN, CHOSEN = 0.3, 0.35  # shares of the run: from the first on all layers, to the second CHOICES
CHOICES = {"choices": 1.0}
HALF = 0.5  # from which share of the run on skills are drawn as LATE says
LOOKED_AT = ("calls", "choices", "conversations with tools")
LOOKED_AT_CHATS = 50  # of each


def reading_at(share: float) -> tuple[int, Mapping[str, float]]:
    """Batches of a step, each of TOKENS_A_BATCH, and how often each skill is drawn for them."""
    batches = FIRST_BATCHES if share < LATER else LATER_BATCHES
    if GROWN <= share < CHOSEN:
        return batches, CHOICES
    return batches, EARLY if share < HALF else LATE


def begin(
    shape: NetworkShape, seed: int, tokenizer: PreTrainedTokenizerFast, device: str
) -> TrainingState[Network]:
    """Muon for the layers' matrices; AdamW for the embeddings and, without decay, the norms."""
    network = Network(shape, seed)
    prime(network, seed)
    network = network.to(device)
    rated = [(list(alike), MATRIX_RATE) for alike in network.matrices()]
    where = network.embed.device
    optimizers = [
        *(muon(where, half) for half in (rated[:2], rated[2:])),  # for two workers
        adam([([network.embed], DECAY, OTHER_RATE), ([network.norms], 0.0, OTHER_RATE)]),
    ]
    return TrainingState(network, tokenizer, optimizers)


def lesson_of(network: Network, batches: list[ChatBatch]) -> TrainingLesson:
    """A lesson on the mean loss over all targets of the batches."""
    device, counted = network.embed.device, sum(batch.counted for batch in batches)

    def part(batch: ChatBatch) -> Tensor:
        return answer_loss(network, batch.ids.to(device), batch.targets.to(device)) / counted

    seen = sum(batch.tokens for batch in batches)
    return TrainingLesson([partial(part, batch) for batch in batches], seen)


def grow(state: TrainingState[Network], seed: int) -> None:
    """Uses all layers from now on."""
    some = [
        chat
        for name in LOOKED_AT
        for chat in islice(talks(f"{seed} {name}", name), LOOKED_AT_CHATS)
    ]
    texts = [ids for ids, _ in encoded(state.tokenizer, some)]
    begun, end = state.tokenizer([f"{END}\n{ANSWER}<tool_call>\n{NAME}", TOOLS_END])["input_ids"]
    install(state.network, texts, begun, *end)


def lessons(state: TrainingState[Network], length: Length, seed: int) -> Generator[TrainingLesson]:
    reading: tuple[int, Mapping[str, float]] = 0, {}
    while (share := length.share(state)) < 1.0:
        if reading != reading_at(share):
            reading = reading_at(share)
            source = steps(state.tokenizer, seed, state.step, TOKENS_A_BATCH, *reading)
        if share >= GROWN and len(state.network.used) < state.network.shape.layers:
            grow(state, seed)
        yield lesson_of(state.network, next(source))


RECIPE = Recipe(lessons, export, "tokens")


def main() -> None:
    parser = arguments("Train the demo model from scratch.", MODEL)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draft", type=Path, metavar="MODEL", help="a small one for this model")
    args = parser.parse_args()

    def first() -> TrainingState[Network]:
        known = args.draft or (args.out if args.resume else None)
        tokenizer = AutoTokenizer.from_pretrained(known) if known else train_tokenizer(args.seed)
        return begin(DRAFT if args.draft else DEMO, args.seed, tokenizer, args.device)

    run(RECIPE, args, first)


if __name__ == "__main__":
    main()
