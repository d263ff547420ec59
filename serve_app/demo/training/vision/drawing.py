"""Pictures of scenes, drawn with pillow: the same pixels for the same scene and seed."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from math import cos, pi, radians, sin
from random import Random

from PIL import Image, ImageDraw, ImageFont

from serve_app.demo.training.vision.scenes import (
    AXIS,
    BACKGROUNDS,
    CEILING,
    COLOURS,
    FLOOR,
    GROUND_JITTER,
    JITTER,
    Bars,
    Colour,
    Item,
    Scene,
    Shapes,
    Writing,
)

SIDE = 192  # of a drawn picture; the model looks at a smaller one, which smooths the edges
Points = list[tuple[float, float]]
INK = (70, 70, 70)  # of axes


def drawn(scene: Scene, seed: int | str, side: int = SIDE) -> Image.Image:
    """A square picture; the seed decides shades."""
    shade = Random(f"{seed} shades")
    ground = _near(shade, shade.choice(BACKGROUNDS[scene.background]), GROUND_JITTER)
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
    return _near(shade, shade.choice(COLOURS[name]), JITTER)


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
            for x, y in OUTLINES[item.shape]()
        ],
        fill=fill,
    )


def _square() -> Points:
    return [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)]


def _triangle() -> Points:
    return [(0, -0.95), (1, 0.85), (-1, 0.85)]


def _diamond() -> Points:
    return [(0, -1), (0.72, 0), (0, 1), (-0.72, 0)]


def _cross() -> Points:
    arm = 0.32
    corner = [(arm, -1.0), (arm, -arm), (1.0, -arm)]
    turned = [corner]
    for _ in range(3):
        turned.append([(-y, x) for x, y in turned[-1]])
    return [point for part in turned for point in part]


@cache
def _star() -> Points:
    angles = [pi * at / 5 - pi / 2 for at in range(10)]
    return [
        ((0.42 if at % 2 else 1) * cos(angle), (0.42 if at % 2 else 1) * sin(angle) + 0.05)
        for at, angle in enumerate(angles)
    ]


@cache
def _heart() -> Points:
    angles = [2 * pi * at / 40 for at in range(40)]
    return [
        (
            sin(t) ** 3,
            -(13 * cos(t) - 5 * cos(2 * t) - 2 * cos(3 * t) - cos(4 * t)) / 16 - 0.08,
        )
        for t in angles
    ]


OUTLINES: dict[str, Callable[[], Points]] = {
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "diamond": _diamond,
    "cross": _cross,
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
    left, bottom, top = AXIS * side, FLOOR * side, CEILING * side
    thin = max(1, side // 96)
    if scene.has_lines:
        for line in range(1, 5):
            y = bottom - (bottom - top) * line / 4
            pen.line((left, y, 0.97 * side, y), fill=(205, 205, 205), width=thin)
    for colour, span in zip(scene.colours, scene.spans, strict=True):
        pen.rectangle([at * side for at in span], fill=_of(shade, colour))
    pen.line((left, top, left, bottom), fill=INK, width=2 * thin)
    pen.line((left, bottom, 0.97 * side, bottom), fill=INK, width=2 * thin)
