"""Llama 4: an image is cut into tiles of the canvas that fits it best, and is seen whole, too.

Scales are compared in float32, because transformers does so and ties decide.
"""

from dataclasses import dataclass
from struct import pack, unpack

from deployments.contract.media_rules import Expansion, ImageRules, MediaRules
from deployments.media.families.described import Described, kind_fields

START, END, TILE_END, ROW_END = (
    "<|image_start|>",
    "<|image_end|>",
    "<|tile_x_separator|>",
    "<|tile_y_separator|>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileImageRules(ImageRules):
    """`canvases` are rows and columns of tiles, `side` is of a tile, in pixels."""

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


def llama4_rules(processor: Described) -> MediaRules:
    image_processor, tokenizer = processor.image_processor, processor.tokenizer
    placeholder: str = processor.img_patch_token
    side: int = image_processor.size["height"]
    n_patches = (side // processor.patch_size) ** 2
    return MediaRules(
        images=TileImageRules(
            **kind_fields(
                processor.image_token, placeholder, tokenizer.convert_tokens_to_ids(placeholder)
            ),
            side=side,
            canvases=_canvases(image_processor.max_patches),
            n_tile=n_patches // processor.downsample_ratio,
            takes_largest=bool(image_processor.resize_to_max_canvas),
        )
    )


def _canvases(most: int) -> tuple[tuple[int, int], ...]:
    """Returns the canvases of up to `most` tiles.

    Those of one ratio stand together, and the ratios in the order in which they first occur.
    """
    by_ratio: dict[float, list[tuple[int, int]]] = {}
    for tiles in range(most, 0, -1):
        for rows in (divisor for divisor in range(1, tiles + 1) if tiles % divisor == 0):
            columns = tiles // rows
            by_ratio.setdefault(rows / columns, []).append((rows, columns))
    return tuple(canvas for canvases in by_ratio.values() for canvas in canvases)
