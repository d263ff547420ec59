"""Pictures with what is asked of them: endless for training, held out for evaluation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from PIL import Image

from serve_app.demo.training.corpus import typed, written
from serve_app.demo.training.corpus.chat import Chat, Exchange, Expect, Turn, said
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.vision import questions, scenes
from serve_app.demo.training.vision.drawing import SIDE, drawn
from serve_app.demo.training.vision.scenes import Scene

IMAGE = "<image>"
IMAGES = 0.35  # share of questions about a picture that call it an image
Asker = Callable[[SeededDraw, Any], Exchange | None]
Askers = list[tuple[Asker, float]]

GROUND = (questions.ground, 0.5)
FEW: Askers = [
    (questions.colour, 3),
    (questions.shape, 3),
    (questions.where, 4),
    (questions.relation, 2),
    (questions.is_related, 2),
    (questions.is_there, 2),
    (questions.describe, 4),
    (questions.count, 1.5),
    GROUND,
]
MANY: Askers = [(questions.count, 6), (questions.is_there, 1), (questions.describe, 2)]
WRITING: Askers = [(questions.colour_of_writing, 1), (questions.describe_writing, 1), GROUND]
BARS: Askers = [
    (questions.extreme, 4),
    (questions.bar_at, 2),
    (questions.count_bars, 2),
    (questions.taller, 2),
    (questions.describe_bars, 1),
]


def _few(draw: SeededDraw) -> Scene:
    return scenes.few(draw, draw.choices((1, 2, 3), (2, 4, 2))[0])


def _many(draw: SeededDraw) -> Scene:
    return scenes.many(draw, draw.randint(1, 5))


# kinds of pictures: the scene, what is asked of it, and how often it is drawn for training
KINDS: dict[str, tuple[Callable[[SeededDraw], Scene], Askers, float]] = {
    "few": (_few, FEW, 5),
    "many": (_many, MANY, 5),
    "number": (scenes.number, [(questions.read_number, 6), *WRITING], 4),
    "word": (scenes.word, [(questions.read_word, 6), *WRITING], 1.5),
    "bars": (scenes.bars, BARS, 1.2),
}
# what the evaluation scores
EVALUATED: dict[str, tuple[Callable[[SeededDraw], Scene], Asker]] = {
    "colours": (_few, questions.colour),
    "shapes": (_few, questions.shape),
    "counts to 5": (_many, questions.count),
    "positions": (_few, questions.where),
    "digits": (scenes.number, questions.read_number),
    "left, right, above, below": (lambda draw: scenes.few(draw, 2), questions.relation),
    "yes or no": (_few, questions.is_there),
    "whole pictures": (lambda draw: scenes.few(draw, 2), questions.describe),
    "words": (scenes.word, questions.read_word),
    "tallest and shortest bars": (scenes.bars, questions.extreme),
    "counts of bars": (scenes.bars, questions.count_bars),
}
NO_PICTURE = "I see no picture. Please send me one."


@dataclass(frozen=True)
class Lesson:
    """A picture and chats that each begin with it; `system` stands before all of them."""

    scene: Scene
    picture: Image.Image
    chats: tuple[tuple[Exchange, ...], ...]
    system: str

    def conversations(self) -> list[Chat]:
        told = [Turn("system", self.system)] if self.system else []
        return [Chat([*told, *seen(exchanges)]) for exchanges in self.chats]


@dataclass(frozen=True)
class VisionCase:
    kind: str
    scene: Scene
    seed: str
    question: str
    answer: str
    expect: Expect

    def picture(self, side: int = SIDE) -> Image.Image:
        return drawn(self.scene, self.seed, side)


def seen(exchanges: tuple[Exchange, ...]) -> list[Turn]:
    """Turns of which the first shows the picture, as the template writes it."""
    first, *rest = [turn for exchange in exchanges for turn in exchange.turns()]
    return [Turn("user", f"{IMAGE}\n{first.text}"), *rest]


def lesson(seed: str, chats: int, exchanges: tuple[int, int] = (1, 1), system: str = "") -> Lesson:
    """`exchanges`: of a chat, at least and at most."""
    draw = SeededDraw(seed)
    make, askers, _ = draw.choices(list(KINDS.values()), [kind[2] for kind in KINDS.values()])[0]
    scene = make(draw)
    asked = tuple(_chat(draw, scene, askers, draw.randint(*exchanges)) for _ in range(chats))
    return Lesson(scene, drawn(scene, seed), asked, system)


def _chat(draw: SeededDraw, scene: Scene, askers: Askers, length: int) -> tuple[Exchange, ...]:
    found: list[Exchange] = []
    while len(found) < length:
        asker = draw.choices([a for a, _ in askers], [share for _, share in askers])[0]
        exchange = asker(draw, scene)
        if exchange is not None:
            found.append(typed(draw, _named(draw, written(exchange))))
    return tuple(found)


def _named(draw: SeededDraw, exchange: Exchange) -> Exchange:
    """A picture is an image to many, which no held-out wording says."""
    if not draw.chance(IMAGES):
        return exchange
    return replace(exchange, question=exchange.question.replace("picture", "image"))


def blind(draw: SeededDraw) -> Chat:
    """Makes a chat that asks about a picture, without one."""
    section = draw.choice(("describe", "shape", "read_number", "read"))
    exchange = said(questions.ASKED.ask(draw, section), NO_PICTURE, "no picture")
    return Chat(typed(draw, written(exchange)).turns())


def cases(kind: str, seed: int = 0) -> Iterator[VisionCase]:
    """Endless, and held out from training by construction."""
    make, asker = EVALUATED[kind]
    draw = SeededDraw(f"{seed} sight {kind}", held=True)
    for at in count():
        scene = make(draw)
        exchange = asker(draw, scene)
        if exchange is not None:
            asked = written(exchange)
            yield VisionCase(
                kind, scene, f"{seed} {kind} {at}", asked.question, asked.answer, asked.expect
            )
