"""Labels of what is in each patch of a picture, for the heads that teach the tower to see.

Beside a thing and its colour they tell what questions are about: where it lies, which one it is of
its line, how many there are, what the line says. So a patch has the answer before the language
model looks at it.
"""

from collections import Counter
from collections.abc import Sequence
from math import ceil, floor
from typing import NamedTuple

import torch
from torch import Tensor

from serve_app.demo.training.vision.drawing import letter_spans
from serve_app.demo.training.vision.scenes import (
    COLOURS,
    COLUMNS,
    ROWS,
    SHAPES,
    WORDS,
    Bars,
    Scene,
    Shapes,
    Writing,
    third,
)

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
BAR = "bar"
# nothing is the first of all
THINGS = {name: at for at, name in enumerate((*SHAPES, *LETTERS, BAR), 1)}
SHADES = {name: at for at, name in enumerate(COLOURS, 1)}
ROW_NUMBERS, COLUMN_NUMBERS = (
    {"": 0, **{name: at for at, name in enumerate(names, 1)}} for names in (ROWS, COLUMNS)
)
MOST = max(map(len, WORDS))  # things in a picture
Box = tuple[float, float, float, float]  # left, top, right, bottom, as shares of the side


class Label(NamedTuple):
    """The labels of a patch; 0 where there is none.

    order: the thing's place among all; for letters and bars alone.
    alike, coloured: how many there are of this thing, and of this colour.
    all: how many things there are, in each patch.
    first to fifth: the letters of a line, in each of its patches.
    """

    thing: int = 0
    colour: int = 0
    row: int = 0
    column: int = 0
    order: int = 0
    alike: int = 0
    coloured: int = 0
    all: int = 0
    first: int = 0
    second: int = 0
    third: int = 0
    fourth: int = 0
    fifth: int = 0


# What a word of the language model stands for.
WORDED: tuple[Sequence[str], ...] = (tuple(THINGS), tuple(SHADES), ROWS, COLUMNS)
# of the other labels, with the one for none
CLASSES = (MOST + 1,) * 4 + (len(LETTERS) + 1,) * MOST
LINE = Label._fields.index("first")


def labels(scene: Scene, grid: int) -> Tensor:
    """[grid * grid, heads]: as Label; a patch has what its middle lies in."""
    boxes = _boxes(scene)
    numbers = Counter(thing for thing, _, _ in boxes)
    shades = Counter(colour for _, colour, _ in boxes)
    found = torch.tensor(Label(all=len(boxes))).repeat(grid, grid, 1)
    for at, (thing, colour, box) in enumerate(boxes, 1):
        left, top, right, bottom = box
        rows = slice(_after(top, grid), _after(bottom, grid))
        columns = slice(_after(left, grid), _after(right, grid))
        label = Label(
            thing=THINGS[thing],
            colour=SHADES[colour],
            row=ROW_NUMBERS[third((top + bottom) / 2, ROWS)],
            column=COLUMN_NUMBERS[third((left + right) / 2, COLUMNS)],
            order=0 if isinstance(scene, Shapes) else at,
            alike=numbers[thing],
            coloured=shades[colour],
            all=len(boxes),
        )
        found[rows, columns] = torch.tensor(label)
    if isinstance(scene, Writing):
        _add_line(found, scene, boxes)
    return found.flatten(0, 1)


def _add_line(found: Tensor, scene: Writing, boxes: Sequence[tuple[str, str, Box]]) -> None:
    """Adds the letters of a line to each patch that it touches."""
    grid = len(found)
    (left, top), (right, bottom) = boxes[0][2][:2], boxes[-1][2][2:]
    rows = slice(max(0, floor(top * grid)), ceil(bottom * grid))
    columns = slice(max(0, floor(left * grid)), ceil(right * grid))
    for at, letter in enumerate(scene.text.lower(), LINE):
        found[rows, columns, at] = LETTERS.index(letter) + 1


def _after(at: float, grid: int) -> int:
    """The first patch whose middle lies behind it."""
    return min(grid, max(0, round(at * grid)))


def _boxes(scene: Scene) -> Sequence[tuple[str, str, Box]]:
    match scene:
        case Shapes():
            return [
                (item.shape, item.colour, _around(item.x, item.y, item.size, item.size))
                for item in scene.items
            ]
        case Writing():
            # Letters are less high than their line.
            y, half = scene.y, 0.36 * scene.size
            return [
                (letter.lower(), scene.colour, (left, y - half, right, y + half))
                for letter, (left, right) in zip(scene.text, letter_spans(scene), strict=True)
            ]
        case Bars():
            spans = scene.spans
            return [(BAR, colour, box) for colour, box in zip(scene.colours, spans, strict=True)]


def _around(x: float, y: float, wide: float, high: float) -> Box:
    return x - wide / 2, y - high / 2, x + wide / 2, y + high / 2
