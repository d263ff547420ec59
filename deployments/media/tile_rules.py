"""How many ids an image has that is cut into tiles, and is seen whole beside them."""

from dataclasses import dataclass
from math import ceil, sqrt
from struct import pack, unpack

from deployments.contract.media_rules import Expansion, ImageRules

MAX_SIDE = 4096  # of an image that is cut into frames, in pixels
# Marks of Llama 4.
START, END, TILE_END, ROW_END = (
    "<|image_start|>",
    "<|image_end|>",
    "<|tile_x_separator|>",
    "<|tile_y_separator|>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaNextImageRules(ImageRules):
    """LLaVA-NeXT: tiles of the best of some canvases.

    Padding that fills a canvas up to its edges has no ids. Each row of patches ends with one id
    more.

    tile_height, tile_width: of a tile, in pixels. rows, columns: of its patches.

    n_whole: ids of the whole image in one tile.
    canvases: (height, width), in pixels.
    n_selected: ids of an image beside those of patches.
    """

    tile_height: int
    tile_width: int
    rows: int
    columns: int
    n_whole: int
    canvases: tuple[tuple[int, int], ...]
    n_selected: int

    def expand(self, width: int, height: int) -> Expansion:
        rows, columns = self._unpadded(width, height)
        n_ids = self.n_whole + rows * columns + rows + self.n_selected
        return Expansion(self.placeholder, (n_ids,))

    def _unpadded(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of the patches of the tiles that the image itself covers."""
        canvas_height, canvas_width = best_canvas(width, height, self.canvases)
        rows = self.rows * (canvas_height // self.tile_height)
        columns = self.columns * (canvas_width // self.tile_width)
        if width / height > columns / rows:
            covered = int(round(height * (columns / width), 7))
            return rows - (rows - covered) // 2 * 2, columns
        covered = int(round(width * (rows / height), 7))
        return rows, columns - (columns - covered) // 2 * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OnevisionImageRules(LlavaNextImageRules):
    """LLaVA-OneVision: an image with more patches than fill `max_tiles` tiles is scaled down to
    these.

    Each image is expanded as if it were the only one: what comes later in a conversation changes
    nothing before it.
    """

    max_tiles: int

    def expand(self, width: int, height: int) -> Expansion:
        rows, columns = self._unpadded(width, height)
        ratio = sqrt(rows * columns / (self.max_tiles * self.rows**2))
        if ratio > 1.1:
            rows, columns = int(rows // ratio), int(columns // ratio)
        n_ids = self.n_whole + rows * columns + rows + self.n_selected
        return Expansion(self.placeholder, (n_ids,))


def best_canvas(width: int, height: int, canvases: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """The canvas on which most of the image is left, and of these the one with the least waste."""

    def quality(canvas: tuple[int, int]) -> tuple[int, int]:
        scale = min(canvas[1] / width, canvas[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - canvas[0] * canvas[1]

    return max(canvases, key=quality)  # the first of equals


@dataclass(frozen=True, slots=True, kw_only=True)
class Idefics3ImageRules(ImageRules):
    """Idefics 3 and SmolVLM: rows of frames.

    side: of a frame, in pixels.

    long_side: of the image before it is cut. None: it keeps its own.
    n_frame: ids of a frame.
    fake: the token around frames. whole: the one before the frame of the whole image.
    """

    side: int
    long_side: int | None
    is_cut: bool
    n_frame: int
    fake: str
    whole: str

    def expand(self, width: int, height: int) -> Expansion:
        rows, columns = self._frames(width, height)
        lines = (self._line(row, columns) for row in range(1, rows + 1))
        gap = "\n" if rows else ""
        last = f"{gap}{self.fake}{self.whole}{self.placeholder}{self.fake}"
        return Expansion("".join((*lines, last)), (self.n_frame,) * (rows * columns + 1))

    def _line(self, row: int, columns: int) -> str:
        frames = (
            f"{self.fake}<row_{row}_col_{column}>{self.placeholder}"
            for column in range(1, columns + 1)
        )
        return "".join(frames) + "\n"

    def _frames(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns; none for an image that is seen whole only."""
        if not self.is_cut:
            return 0, 0
        if self.long_side is not None:
            width, height = _scaled(width, height, self.long_side)
        columns, rows = self._covering(width, height)
        return (rows, columns) if rows > 1 or columns > 1 else (0, 0)

    def _covering(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of frames that the image is stretched to."""
        ratio = width / height
        if width >= height:
            columns = ceil(width / self.side)
            return columns, ceil(int(columns * self.side / ratio) / self.side)
        rows = ceil(height / self.side)
        return ceil(int(rows * self.side * ratio) / self.side), rows


def _scaled(width: int, height: int, long_side: int) -> tuple[int, int]:
    """The shorter side becomes even, and no side is longer than MAX_SIDE."""
    ratio = width / height
    if width >= height:
        short = int(long_side / ratio)
        width, height = long_side, max(short + short % 2, 1)
    else:
        short = int(long_side * ratio)
        width, height = max(short + short % 2, 1), long_side
    ratio = width / height
    if width >= height and width > MAX_SIDE:
        return MAX_SIDE, max(int(MAX_SIDE / ratio), 1)
    if height > width and height > MAX_SIDE:
        return max(int(MAX_SIDE * ratio), 1), MAX_SIDE
    return width, height


@dataclass(frozen=True, slots=True, kw_only=True)
class InternVLImageRules(ImageRules):
    """InternVL in Hugging Face's form: tiles of one size.

    `canvases` have columns and rows of tiles. Without any an image is one tile.
    """

    tile_height: int
    tile_width: int
    canvases: tuple[tuple[int, int], ...]
    n_tile: int
    before: str
    after: str

    def expand(self, width: int, height: int) -> Expansion:
        text = f"{self.before}{self.placeholder}{self.after}"
        columns, rows = self._canvas(width, height)
        tiles = columns * rows
        return Expansion(text, (self.n_tile * (tiles if tiles == 1 else tiles + 1),))

    def _canvas(self, width: int, height: int) -> tuple[int, int]:
        """The one with the nearest proportions. Of equals the largest one that the image fills by
        half.
        """
        ratio, area = width / height, width * height
        tile = self.tile_height * self.tile_width
        best, least = (1, 1), float("inf")
        for columns, rows in self.canvases:
            difference = abs(ratio - columns / rows)
            is_filled = area > 0.5 * tile * columns * rows
            if difference < least or (difference == least and is_filled):
                best, least = (columns, rows), difference
        return best


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama4ImageRules(ImageRules):
    """Llama 4: tiles of the canvas that fits the image best.

    Scales are compared in float32, because transformers does so and ties decide.

    `canvases` are rows and columns of tiles, `side` is of a tile, in pixels.
    """

    side: int
    canvases: tuple[tuple[int, int], ...]
    n_tile: int
    takes_largest: bool  # of the canvases that an image can be enlarged to

    def expand(self, width: int, height: int) -> Expansion:
        rows, columns = self._canvas(width, height)
        is_cut = rows * columns > 1
        row = TILE_END.join([self.placeholder] * columns) + ROW_END
        tiles = row * rows if is_cut else ""
        text = f"{START}{tiles}{self.marker}{self.placeholder}{END}"
        return Expansion(text, (self.n_tile,) * (rows * columns + 1 if is_cut else 1))

    def _canvas(self, width: int, height: int) -> tuple[int, int]:
        scales = [
            min(_divided(rows * self.side, height), _divided(columns * self.side, width))
            for rows, columns in self.canvases
        ]
        enlarging = [scale for scale in scales if scale >= 1]
        pick = min if enlarging and not self.takes_largest else max
        best = pick(enlarging or scales)
        fitting = [
            canvas for canvas, scale in zip(self.canvases, scales, strict=True) if scale == best
        ]
        return min(fitting, key=lambda canvas: canvas[0] * canvas[1])  # the first of equals


def _divided(dividend: int, divisor: int) -> float:
    return _float32(_float32(dividend) / _float32(divisor))


def _float32(number: float) -> float:
    rounded: float = unpack("f", pack("f", number))[0]
    return rounded
