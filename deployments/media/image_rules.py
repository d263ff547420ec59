"""How many ids an image has that a model sees whole: of one size, or in its own proportions."""

from dataclasses import dataclass
from math import ceil, floor, sqrt

from deployments.contract.media_rules import Expansion, ImageRules, MediaSizeError, check_ratio

# Of an image's sides, where the shorter one is resized and the rest then cut off: of a line of one
# pixel the processor would make gigabytes.
MAX_CROPPED_RATIO = 100
MAX_MERGED_RATIO = 200  # the same, of an image for Qwen's models


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedImageRules(ImageRules):
    """Every image is resized to one size, and has `n_ids` ids, between `before` and `after`.

    So it is with LLaVA 1.5, and with Gemma 3 and 3n.
    """

    n_ids: int
    before: str = ""
    after: str = ""
    is_cropped: bool = False

    def expand(self, width: int, height: int) -> Expansion:
        if self.is_cropped:
            check_ratio(width, height, MAX_CROPPED_RATIO)
        return Expansion(f"{self.before}{self.placeholder}{self.after}", (self.n_ids,))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowImageRules(ImageRules):
    """Pixtral and Mistral 3: an image keeps its proportions, and a token ends each row of patches.

    `square` is the side of what becomes one id, in pixels.
    """

    square: int
    max_height: int
    max_width: int
    row_end: str
    end: str

    def expand(self, width: int, height: int) -> Expansion:
        ratio = max(height / self.max_height, width / self.max_width)
        if ratio > 1:
            width, height = _scaled(width, height, ratio)
        columns, rows = ceil(width / self.square), ceil(height / self.square)
        row = f"{self.placeholder}{self.row_end}"
        text = row * (rows - 1) + f"{self.placeholder}{self.end}"
        return Expansion(text, (columns,) * rows)


def _scaled(width: int, height: int, ratio: float) -> tuple[int, int]:
    found = floor(width / ratio), floor(height / ratio)
    if 0 in found:
        raise MediaSizeError(f"is {width} x {height} pixels, of which this model would see no line")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPatchImageRules(ImageRules):
    """Qwen's VL models: an image keeps its proportions, with an id for each square of merged
    patches.

    `square` is the side of what becomes one id, in pixels. Source of the rounding: Qwen's
    `smart_resize`.
    """

    square: int
    min_pixels: int
    max_pixels: int

    def expand(self, width: int, height: int) -> Expansion:
        check_ratio(width, height, MAX_MERGED_RATIO)
        columns, rows = self._grid(width, height)
        return Expansion(self.placeholder, (columns * rows,), columns)

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of squares."""
        square, pixels = self.square, width * height
        columns, rows = round(width / square), round(height / square)
        if columns * rows * square * square > self.max_pixels:
            shrink = sqrt(pixels / self.max_pixels)
            columns = max(1, floor(width / shrink / square))
            rows = max(1, floor(height / shrink / square))
        elif columns * rows * square * square < self.min_pixels:
            grow = sqrt(self.min_pixels / pixels)
            columns, rows = ceil(width * grow / square), ceil(height * grow / square)
        return columns, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledImageRules(ImageRules):
    """Gemma 4: an image keeps its proportions, and has an id for each square of pooled patches.

    `square` is the side of what becomes one id, in pixels, and `max_ids` the most of these.
    """

    square: int
    max_ids: int
    before: str
    after: str

    def expand(self, width: int, height: int) -> Expansion:
        text = f"{self.before}{self.placeholder}{self.after}"
        return Expansion(text, (self._squares(width, height),))

    def _squares(self, width: int, height: int) -> int:
        scale = sqrt(self.max_ids * self.square**2 / (width * height))
        columns, rows = floor(scale * width / self.square), floor(scale * height / self.square)
        if not columns and not rows:
            raise MediaSizeError(f"is {width} x {height} pixels, which this model can't resize")
        if not rows:
            return min(width // height, self.max_ids)
        return rows * columns or min(height // width, self.max_ids)
