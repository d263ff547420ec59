"""Pictures with what is asked of them: endless for training, held out for evaluation.

The law: an answer follows from the scene alone, and a question has one right answer.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from serve_app.demo.training.corpus import typed, written
from serve_app.demo.training.corpus.chat import Chat, Exchange, Expect, Turn, said
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts, article, capital, joined, plural
from serve_app.demo.training.vision import scenes
from serve_app.demo.training.vision.drawing import SIDE, drawn
from serve_app.demo.training.vision.scenes import (
    SHAPES,
    Bars,
    Item,
    Scene,
    Shapes,
    Writing,
    visible,
)

COUNTS = ("no", "one", "two", "three", "four", "five")
ORDINALS = ("first", "second", "third", "fourth", "fifth")
APART = 0.18  # between two middles, of the picture's side: what is left of what is plain to see

ASKED = Texts("questions")
SIDES = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}


def colour(draw: SeededDraw, scene: Shapes) -> Exchange:
    item = draw.choice(scene.items)
    name = draw.choice((item.shape, "shape")) if len(scene.items) == 1 else item.shape
    return ASKED.said(draw, "colour", s=name, shape=item.shape, colour=item.colour)


def shape(draw: SeededDraw, scene: Shapes) -> Exchange:
    item = draw.choice(scene.items)
    section = "shape" if len(scene.items) == 1 and draw.chance(0.5) else "shape_of"
    return ASKED.said(draw, section, c=item.colour, a=article(item.name), shape=item.shape)


def count(draw: SeededDraw, scene: Shapes) -> Exchange:
    """Asks how many shapes there are, of all, a kind or a colour; rarely of what is not there."""
    by_shape = Counter(item.shape for item in scene.items)
    by_colour = Counter(item.colour for item in scene.items)
    kind = draw.random()
    if kind < 0.4:
        many, single, found = "shapes", "shape", len(scene.items)
    elif kind < 0.75:
        single = draw.choice(SHAPES if draw.chance(0.12) else tuple(by_shape))
        many, found = plural(single), by_shape[single]
    else:
        shade = draw.choice(visible(scene.background) if draw.chance(0.12) else tuple(by_colour))
        single, many, found = f"{shade} shape", f"{shade} shapes", by_colour[shade]
    question = ASKED.ask(draw, "how_many", p=many)
    answer = f"There is one {single}." if found == 1 else f"There are {COUNTS[found]} {many}."
    return said(question, answer, COUNTS[found])


def where(draw: SeededDraw, scene: Shapes) -> Exchange | None:
    placed = [item for item in scene.items if item.place]
    if not placed:
        return None
    item = draw.choice(placed)
    names = [item.shape, item.shape, item.name, f"{item.colour} shape"]
    question = ASKED.ask(draw, "where", s=lambda draw: draw.choice(names))
    answer = f"The {item.shape} is in the {item.place}."
    return Exchange(question, answer, Expect(exactly=answer))


def _related(draw: SeededDraw, scene: Shapes) -> tuple[Item, Item, str] | None:
    """Two shapes and how the first lies to the second, where that is plain."""
    item, other = draw.sample(scene.items, 2)
    across, down = item.x - other.x, item.y - other.y
    found = ["right of" if across > 0 else "left of"] if abs(across) > APART else []
    found += ["below" if down > 0 else "above"] if abs(down) > APART else []
    return (item, other, draw.choice(found)) if found else None


def relation(draw: SeededDraw, scene: Shapes) -> Exchange | None:
    """Asks what lies next to one of two shapes. With three it may be either of two: None then."""
    if len(scene.items) != 2 or not (found := _related(draw, scene)):
        return None
    item, other, side = found
    up = capital(article(item.name))
    return ASKED.said(draw, "relation", r=side, s=other.shape, up=up, shape=item.shape)


def is_related(draw: SeededDraw, scene: Shapes) -> Exchange | None:
    if len(scene.items) < 2 or not (found := _related(draw, scene)):
        return None
    item, other, side = found
    true = draw.chance(0.5)
    fill = {"a": item.shape, "b": other.shape, "r": side if true else SIDES[side], "side": side}
    return ASKED.said(draw, "is_related", **fill, **_yes(true))


def _yes(true: bool) -> dict[str, str]:
    return {"word": "Yes", "low": "yes"} if true else {"word": "No", "low": "no"}


def is_there(draw: SeededDraw, scene: Shapes) -> Exchange:
    item = draw.choice(scene.items)
    if draw.chance(0.5):
        name = item.name
    else:
        shades, form = visible(scene.background), draw.choice(SHAPES)
        name = draw.choice((f"{draw.choice(shades)} {item.shape}", f"{item.colour} {form}"))
    true = name in {each.name for each in scene.items}
    found = article(name) if true else f"no {name}"
    return ASKED.said(draw, "is_there", a=article(name), found=found, **_yes(true))


def describe(draw: SeededDraw, scene: Shapes) -> Exchange | None:
    """Asks for a description, which has the shapes from left to right."""
    if not scene.is_uniform and len({item.name for item in scene.items}) < len(scene.items):
        return None
    if len(scene.items) > 3 and not scene.is_uniform:
        return None
    question = ASKED.ask(draw, "describe")
    if scene.is_uniform and len(scene.items) > 1:
        number, name = COUNTS[len(scene.items)], plural(scene.items[0].name)
        return said(question, f"There are {number} {name}.", number, name)
    names = [item.name for item in sorted(scene.items, key=lambda item: item.x)]
    return said(question, f"There is {joined([article(name) for name in names])}.", *names)


def ground(draw: SeededDraw, scene: Shapes | Writing) -> Exchange:
    return ASKED.said(draw, "ground", name=scene.background)


def read_number(draw: SeededDraw, scene: Writing) -> Exchange:
    return ASKED.said(draw, "read_number" if draw.chance(0.7) else "read", text=scene.text)


def read_word(draw: SeededDraw, scene: Writing) -> Exchange:
    """Asks for the word, which the answer has in small letters, however it is written."""
    return ASKED.said(draw, "read_word" if draw.chance(0.7) else "read", text=scene.text.lower())


def colour_of_writing(draw: SeededDraw, scene: Writing) -> Exchange:
    name = "number" if scene.text.isdigit() else "word"
    fill = {"shape": name, "colour": scene.colour}
    return ASKED.said(draw, "colour", s=lambda draw: draw.choice((name, "text")), **fill)


def describe_writing(draw: SeededDraw, scene: Writing) -> Exchange:
    name, text = "number" if scene.text.isdigit() else "word", scene.text.lower()
    answer = f"There is the {name} {text} in {scene.colour}."
    return said(ASKED.ask(draw, "describe"), answer, text, scene.colour)


def extreme(draw: SeededDraw, scene: Bars) -> Exchange:
    word = draw.choice(("tallest", "highest", "shortest", "lowest"))
    best = max(scene.heights) if word in ("tallest", "highest") else min(scene.heights)
    return ASKED.said(draw, "extreme", e=word, name=scene.colours[scene.heights.index(best)])


def bar_at(draw: SeededDraw, scene: Bars) -> Exchange:
    at = draw.randrange(len(scene.colours))
    is_last = at == len(scene.colours) - 1 and draw.chance(0.6)
    return ASKED.said(draw, "bar_at", o="last" if is_last else ORDINALS[at], name=scene.colours[at])


def count_bars(draw: SeededDraw, scene: Bars) -> Exchange:
    number = COUNTS[len(scene.colours)]
    return said(ASKED.ask(draw, "how_many", p="bars"), f"There are {number} bars.", number)


def taller(draw: SeededDraw, scene: Bars) -> Exchange:
    first, other = draw.sample(range(len(scene.colours)), 2)
    truth = "taller" if scene.heights[first] > scene.heights[other] else "shorter"
    asked = draw.choice(("taller", "shorter"))
    fill = {"a": scene.colours[first], "b": scene.colours[other], "r": asked, "truth": truth}
    return ASKED.said(draw, "taller", **fill, **_yes(truth == asked))


def describe_bars(draw: SeededDraw, scene: Bars) -> Exchange:
    number = COUNTS[len(scene.colours)]
    answer = f"It is a bar chart with {number} bars: {joined(list(scene.colours))}."
    return said(ASKED.ask(draw, "describe"), answer, "bar chart", number, *scene.colours)


IMAGE = "<image>"
IMAGES = 0.35  # share of questions about a picture that call it an image
Asker = Callable[[SeededDraw, Any], Exchange | None]
Askers = list[tuple[Asker, float]]

GROUND = (ground, 0.5)
FEW: Askers = [
    (colour, 3),
    (shape, 3),
    (where, 4),
    (relation, 2),
    (is_related, 2),
    (is_there, 2),
    (describe, 4),
    (count, 1.5),
    GROUND,
]
MANY: Askers = [(count, 6), (is_there, 1), (describe, 2)]
WRITING: Askers = [(colour_of_writing, 1), (describe_writing, 1), GROUND]
BARS: Askers = [(extreme, 4), (bar_at, 2), (count_bars, 2), (taller, 2), (describe_bars, 1)]


def _few(draw: SeededDraw) -> Scene:
    return scenes.few(draw, draw.choices((1, 2, 3), (2, 4, 2))[0])


def _many(draw: SeededDraw) -> Scene:
    return scenes.many(draw, draw.randint(1, 5))


# kinds of pictures: the scene, what is asked of it, and how often it is drawn for training
KINDS: dict[str, tuple[Callable[[SeededDraw], Scene], Askers, float]] = {
    "few": (_few, FEW, 5),
    "many": (_many, MANY, 5),
    "number": (scenes.number, [(read_number, 6), *WRITING], 4),
    "word": (scenes.word, [(read_word, 6), *WRITING], 1.5),
    "bars": (scenes.bars, BARS, 1.2),
}
# what the evaluation scores
EVALUATED: dict[str, tuple[Callable[[SeededDraw], Scene], Asker]] = {
    "colours": (_few, colour),
    "shapes": (_few, shape),
    "counts to 5": (_many, count),
    "positions": (_few, where),
    "digits": (scenes.number, read_number),
    "left, right, above, below": (lambda draw: scenes.few(draw, 2), relation),
    "yes or no": (_few, is_there),
    "whole pictures": (lambda draw: scenes.few(draw, 2), describe),
    "words": (scenes.word, read_word),
    "tallest and shortest bars": (scenes.bars, extreme),
    "counts of bars": (scenes.bars, count_bars),
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
    exchange = said(ASKED.ask(draw, section), NO_PICTURE, "no picture")
    return Chat(typed(draw, written(exchange)).turns())


def cases(kind: str, seed: int = 0) -> Iterator[VisionCase]:
    """Endless, and held out from training by construction."""
    make, asker = EVALUATED[kind]
    draw = SeededDraw(f"{seed} sight {kind}", held=True)
    for at in itertools.count():
        scene = make(draw)
        exchange = asker(draw, scene)
        if exchange is not None:
            asked = written(exchange)
            yield VisionCase(
                kind, scene, f"{seed} {kind} {at}", asked.question, asked.answer, asked.expect
            )
