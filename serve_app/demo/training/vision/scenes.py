"""Scenes of pictures, before these are drawn: shapes, writing, or bars, a function of chance alone.

The law: a pair of a shape and a colour, a number, and a row of bars' colours are for training or
for evaluation, by the rule of `corpus.split`; the scenes of one side have nothing of the other's.
"""

from dataclasses import dataclass
from itertools import combinations
from math import dist
from random import Random

from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts

Colour = tuple[int, int, int]
SHAPES = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring")
PLAIN = 0.5  # share of pictures on white
JITTER, GROUND_JITTER = 10, 5  # of each part of a colour, and of a background's
CONTRAST = 105.0  # between what is drawn and the background, at least
SCENES = Texts("scenes")
WORDS = SCENES.listed("words")
AXIS, FLOOR, CEILING = 0.1, 0.92, 0.08  # of a chart
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "middle", "right")
SIDE_ENDS, MIDDLE = 0.36, (0.42, 0.58)  # what lies between is no clear place


def _colour(text: str) -> Colour:
    red, green, blue = map(int, text.split())
    return red, green, blue


COLOURS, BACKGROUNDS = (
    {name: [*map(_colour, shades)] for name, *shades in SCENES.table(section)}
    for section in ("colours", "backgrounds")
)


@dataclass(frozen=True)
class Item:
    """A shape; `x`, `y` its middle and `size` its width, as shares of the picture's side."""

    shape: str
    colour: str
    x: float
    y: float
    size: float
    angle: float = 0.0  # degrees

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"

    @property
    def place(self) -> str:
        """The place where it clearly lies, such as "top left"; empty where that is not clear."""
        row, column = third(self.y, ROWS), third(self.x, COLUMNS)
        if not (row and column):
            return ""
        if row == column:
            return "middle"
        return f"{row} {column}"


@dataclass(frozen=True)
class Shapes:
    items: tuple[Item, ...]
    background: str

    @property
    def is_uniform(self) -> bool:
        return len({item.name for item in self.items}) == 1


@dataclass(frozen=True)
class Writing:
    """One line; `x`, `y` its middle and `size` the height of its letters."""

    text: str
    colour: str
    background: str
    x: float
    y: float
    size: float
    angle: float = 0.0


@dataclass(frozen=True)
class Bars:
    """Bars from left to right; heights as shares of the axis."""

    colours: tuple[str, ...]
    heights: tuple[float, ...]
    background: str
    has_lines: bool

    @property
    def spans(self) -> list[tuple[float, float, float, float]]:
        """Left, top, right and bottom of each, as shares of the picture's side."""
        wide = (0.95 - AXIS) / len(self.colours)
        return [
            (
                AXIS + wide * (at + 0.14),
                FLOOR - height * (FLOOR - CEILING),
                AXIS + wide * (at + 0.86),
                FLOOR,
            )
            for at, height in enumerate(self.heights)
        ]


Scene = Shapes | Writing | Bars


def third(at: float, names: tuple[str, str, str]) -> str:
    """Names the third of the side that a point is in; empty where that is not clear."""
    if at <= SIDE_ENDS:
        return names[0]
    if at >= 1 - SIDE_ENDS:
        return names[2]
    return names[1] if MIDDLE[0] <= at <= MIDDLE[1] else ""


def background(draw: Random) -> str:
    return "white" if draw.random() < PLAIN else draw.choice(tuple(BACKGROUNDS))


def visible(background: str) -> list[str]:
    """Colours that are seen on any shade of it."""
    shades = BACKGROUNDS[background]
    return [
        name
        for name, colours in COLOURS.items()
        if name != background
        and all(dist(colour, shade) > CONTRAST for colour in colours for shade in shades)
    ]


def pair(draw: SeededDraw, background: str) -> tuple[str, str]:
    """A shape and its colour, of this side."""
    colours = visible(background)
    made = draw.new(lambda chance: f"{chance.choice(colours)} {chance.choice(SHAPES)}")
    colour, shape = made.split()
    return shape, colour


def few(draw: SeededDraw, count: int) -> Shapes:
    """Different shapes of different colours: each is the only one of its shape and its colour."""
    ground = background(draw)
    while True:
        pairs = [pair(draw, ground) for _ in range(count)]
        if all(a != c and b != d for (a, b), (c, d) in combinations(pairs, 2)):
            return Shapes(_placed(draw, pairs), ground)


def many(draw: SeededDraw, count: int) -> Shapes:
    """Draws shapes to be counted: all alike, of two kinds at most, or of five at most."""
    ground, kind = background(draw), draw.random()
    first = pair(draw, ground)
    if kind < 0.45:
        return Shapes(_placed(draw, [first] * count), ground)
    pool = [first, *(pair(draw, ground) for _ in range(1 if kind < 0.75 else 4))]
    return Shapes(_placed(draw, [draw.choice(pool) for _ in range(count)]), ground)


def _placed(draw: SeededDraw, pairs: list[tuple[str, str]]) -> tuple[Item, ...]:
    """Places shapes without overlap, mostly of one size and upright, as people draw them."""
    count = len(pairs)
    while True:
        greatest = (0.7, 0.42, 0.34, 0.3, 0.27)[count - 1]
        size = draw.uniform(0.17, greatest)
        like = draw.chance(0.6)
        items: list[Item] = []
        for shape, colour in pairs:
            own = size if like else draw.uniform(0.17, greatest)
            angle = 0.0 if draw.chance(0.7) else draw.uniform(-12, 12)
            item = _room(draw, Item(shape, colour, 0.0, 0.0, own, angle), items)
            if item is None:
                break
            items.append(item)
        if len(items) == count:
            return tuple(items)


def _room(draw: SeededDraw, item: Item, others: list[Item]) -> Item | None:
    edge = 0.55 * item.size + 0.01
    for _ in range(30):
        x, y = draw.uniform(edge, 1 - edge), draw.uniform(edge, 1 - edge)
        if all(
            max(abs(x - other.x), abs(y - other.y)) > 0.56 * (item.size + other.size) + 0.01
            for other in others
        ):
            return Item(item.shape, item.colour, x, y, item.size, item.angle)
    return None


def number(draw: SeededDraw) -> Writing:
    """Draws a number of one to three digits; single digits are too few to be held out."""
    digits = draw.choices((1, 2, 3), (3, 4, 3))[0]
    if digits == 1:
        return _written(draw, str(draw.randrange(10)))
    least = 10 ** (digits - 1)
    return _written(draw, draw.new(lambda chance: str(chance.randrange(least, 10 * least))))


def word(draw: SeededDraw) -> Writing:
    """Training knows all words: what is held out is their colour on their background."""

    def made(chance: Random) -> str:
        ground = background(chance)
        return f"{chance.choice(WORDS)} {chance.choice(visible(ground))} {ground}"

    text, colour, ground = draw.new(made).split()
    text = draw.choice((text, text, text.upper(), text.capitalize()))
    return _line(draw, text, colour, ground)


def _written(draw: SeededDraw, text: str) -> Writing:
    ground = background(draw)
    is_ink = ground == "white" and draw.chance(0.3)
    return _line(draw, text, "black" if is_ink else draw.choice(visible(ground)), ground)


def _line(draw: SeededDraw, text: str, colour: str, ground: str) -> Writing:
    most = min(0.55, 1.45 / max(2, len(text)))
    size = draw.uniform(min(0.3, 0.9 * most), most)
    wide, high = 0.32 * size * len(text) + 0.02, 0.5 * size + 0.02
    x = 0.5 if wide >= 0.48 else draw.uniform(wide, 1 - wide)
    angle = 0.0 if draw.chance(0.75) else draw.uniform(-8, 8)
    return Writing(text, colour, ground, x, draw.uniform(high, 1 - high), size, angle)


def bars(draw: SeededDraw) -> Bars:
    ground = draw.choice(("white", "white", "white", "grey"))
    seen, count = visible(ground), draw.randint(2, 5)
    colours = draw.new(lambda chance: " ".join(chance.sample(seen, count))).split()
    while True:
        heights = [draw.uniform(0.12, 1.0) for _ in range(count)]
        if all(abs(a - b) > 0.09 for a, b in combinations(heights, 2)):
            return Bars(tuple(colours), tuple(heights), ground, draw.chance(0.5))
