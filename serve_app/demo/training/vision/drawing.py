"""Pictures of scenes, the same pixels for the same scene and seed, and labels of their patches.

The labels are for the heads that teach the tower to see. Beside a thing and its colour they tell
what questions are about: where it lies, which one it is of its line, how many there are, what the
line says. So a patch has the answer before the language model looks at it.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import ceil, cos, floor, pi, radians, sin
from random import Random
from typing import NamedTuple

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from serve_app.demo.training.vision import scenes
from serve_app.demo.training.vision.scenes import Bars, Colour, Item, Scene, Shapes, Writing

SIDE = 192  # of a drawn picture; the model looks at a smaller one, which smooths the edges
Points = list[tuple[float, float]]
INK = (70, 70, 70)  # of axes


def drawn(scene: Scene, seed: int | str, side: int = SIDE) -> Image.Image:
    """A square picture; the seed decides shades."""
    shade = Random(f"{seed} shades")
    ground = _near(shade, shade.choice(scenes.BACKGROUNDS[scene.background]), scenes.GROUND_JITTER)
    picture = Image.new("RGB", (side, side), ground)
    match scene:
        case Shapes():
            for item in scene.items:
                _shape(ImageDraw.Draw(picture), item, _of(shade, item.colour), side)
        case Writing():
            _writing(picture, scene, _of(shade, scene.colour))
        case Bars():
            _bars(ImageDraw.Draw(picture), scene, shade, side)
    return picture


def _of(shade: Random, name: str) -> Colour:
    return _near(shade, shade.choice(scenes.COLOURS[name]), scenes.JITTER)


def _near(shade: Random, colour: Colour, jitter: int) -> Colour:
    red, green, blue = (min(255, max(0, c + shade.randint(-jitter, jitter))) for c in colour)
    return red, green, blue


def _shape(pen: ImageDraw.ImageDraw, item: Item, fill: Colour, side: int) -> None:
    middle_x, middle_y, half = item.x * side, item.y * side, item.size * side / 2
    if item.shape in ("circle", "ring"):
        box = (middle_x - half, middle_y - half, middle_x + half, middle_y + half)
        if item.shape == "circle":
            pen.ellipse(box, fill=fill)
        else:
            pen.ellipse(box, outline=fill, width=max(2, round(0.45 * half)))
        return
    turn = radians(item.angle)
    pen.polygon(
        [
            (
                middle_x + half * (x * cos(turn) - y * sin(turn)),
                middle_y + half * (x * sin(turn) + y * cos(turn)),
            )
            for x, y in OUTLINES[item.shape]
        ],
        fill=fill,
    )


def _star() -> Points:
    angles = [pi * at / 5 - pi / 2 for at in range(10)]
    return [
        ((0.42 if at % 2 else 1) * cos(angle), (0.42 if at % 2 else 1) * sin(angle) + 0.05)
        for at, angle in enumerate(angles)
    ]


def _heart() -> Points:
    angles = [2 * pi * at / 40 for at in range(40)]
    return [
        (sin(t) ** 3, -(13 * cos(t) - 5 * cos(2 * t) - 2 * cos(3 * t) - cos(4 * t)) / 16 - 0.08)
        for t in angles
    ]


CORNERS = [(0.32, -1.0), (0.32, -0.32), (1.0, -0.32)]  # of an arm of a cross
OUTLINES: dict[str, Points] = {
    "square": [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
    "triangle": [(0, -0.95), (1, 0.85), (-1, 0.85)],
    "star": _star(),
    "heart": _heart(),
    "diamond": [(0, -1), (0.72, 0), (0, 1), (-0.72, 0)],
    "cross": [
        (x * across - y * down, x * down + y * across)
        for across, down in ((1, 0), (0, 1), (-1, 0), (0, -1))
        for x, y in CORNERS
    ],
}


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _writing(picture: Image.Image, scene: Writing, fill: Colour) -> None:
    side = picture.width
    mask = Image.new("L", picture.size)
    at = (scene.x * side, scene.y * side)
    font = _font(round(scene.size * side))
    ImageDraw.Draw(mask).text(at, scene.text, fill=255, font=font, anchor="mm")
    if scene.angle:
        mask = mask.rotate(scene.angle, Image.Resampling.BILINEAR, center=at)
    picture.paste(fill, mask=mask)


def letter_spans(scene: Writing) -> list[tuple[float, float]]:
    """Returns the span of each letter, as shares of the side, before the line is turned."""
    font = _font(round(scene.size * SIDE))
    ends = [font.getlength(scene.text[:count]) / SIDE for count in range(len(scene.text) + 1)]
    left = scene.x - ends[-1] / 2
    return [(left + begin, left + end) for begin, end in pairwise(ends)]


def _bars(pen: ImageDraw.ImageDraw, scene: Bars, shade: Random, side: int) -> None:
    left, bottom, top = scenes.AXIS * side, scenes.FLOOR * side, scenes.CEILING * side
    thin = max(1, side // 96)
    if scene.has_lines:
        for line in range(1, 5):
            y = bottom - (bottom - top) * line / 4
            pen.line((left, y, 0.97 * side, y), fill=(205, 205, 205), width=thin)
    for colour, span in zip(scene.colours, scene.spans, strict=True):
        pen.rectangle([at * side for at in span], fill=_of(shade, colour))
    pen.line((left, top, left, bottom), fill=INK, width=2 * thin)
    pen.line((left, bottom, 0.97 * side, bottom), fill=INK, width=2 * thin)


LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
BAR = "bar"
# nothing is the first of all
THINGS = {name: at for at, name in enumerate((*scenes.SHAPES, *LETTERS, BAR), 1)}
SHADES = {name: at for at, name in enumerate(scenes.COLOURS, 1)}
ROW_NUMBERS, COLUMN_NUMBERS = (
    {"": 0, **{name: at for at, name in enumerate(names, 1)}}
    for names in (scenes.ROWS, scenes.COLUMNS)
)
MOST = max(map(len, scenes.WORDS))  # things in a picture
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
WORDED: tuple[Sequence[str], ...] = (tuple(THINGS), tuple(SHADES), scenes.ROWS, scenes.COLUMNS)
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
            row=ROW_NUMBERS[scenes.third((top + bottom) / 2, scenes.ROWS)],
            column=COLUMN_NUMBERS[scenes.third((left + right) / 2, scenes.COLUMNS)],
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
