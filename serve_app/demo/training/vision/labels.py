"""What stands in each patch of a picture, for the heads that teach the tower to see."""

import torch
from torch import Tensor

from serve_app.demo.training.vision.drawing import letter_spans
from serve_app.demo.training.vision.scenes import COLOURS, SHAPES, Bars, Scene, Shapes, Writing

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
BAR = "bar"
# nothing is the first of both
THINGS = {name: at for at, name in enumerate((*SHAPES, *LETTERS, BAR), 1)}
SHADES = {name: at for at, name in enumerate(COLOURS, 1)}
CLASSES = (len(THINGS) + 1, len(SHADES) + 1)
Box = tuple[float, float, float, float]  # left, top, right, bottom, as shares of the side


def labels(scene: Scene, grid: int) -> Tensor:
    """[grid * grid, 2]: the thing and its colour; a patch has what its middle lies in."""
    found = torch.zeros(grid, grid, 2, dtype=torch.long)
    for thing, colour, (left, top, right, bottom) in _boxes(scene):
        rows = slice(_after(top, grid), _after(bottom, grid))
        columns = slice(_after(left, grid), _after(right, grid))
        found[rows, columns] = torch.tensor((THINGS[thing], SHADES[colour]))
    return found.flatten(0, 1)


def _after(at: float, grid: int) -> int:
    """The first patch whose middle lies behind it."""
    return min(grid, max(0, round(at * grid)))


def _boxes(scene: Scene) -> list[tuple[str, str, Box]]:
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
