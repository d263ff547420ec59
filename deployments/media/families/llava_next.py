"""LLaVA-NeXT and OneVision: an image is seen whole, and in tiles of the best of some canvases.

What fills a canvas up to its edges has no ids. Each row of patches ends with one id more.
"""

from dataclasses import dataclass
from math import isqrt, sqrt

from deployments.contract.media_rules import Expansion, ImageRules, MediaRules
from deployments.media.families.described import (
    Described,
    UnknownProcessorError,
    edge_of,
    fixed_size,
    image_fields,
)
from deployments.media.families.llava import n_selected


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledImageRules(ImageRules):
    """tile_height, tile_width: of a tile, in pixels. rows, columns: of its patches.

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
class OneVisionImageRules(TiledImageRules):
    """An image with more patches than fill `max_tiles` tiles is scaled down to these.

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


def llava_next_rules(processor: Described) -> MediaRules:
    image_processor, patch = processor.image_processor, processor.patch_size
    height, width = _tile(image_processor)
    rows, columns = height // patch, width // patch
    return MediaRules(
        images=TiledImageRules(
            **image_fields(processor),
            tile_height=height,
            tile_width=width,
            rows=rows,
            columns=columns,
            n_whole=rows * columns,
            canvases=_canvases(image_processor),
            n_selected=n_selected(processor),
        )
    )


def llava_onevision_rules(processor: Described) -> MediaRules:
    image_processor, n_whole = processor.image_processor, processor.num_image_tokens
    height, width = _tile(image_processor)
    side = isqrt(n_whole)
    return MediaRules(
        images=OneVisionImageRules(
            **image_fields(processor),
            tile_height=height,
            tile_width=width,
            rows=side,
            columns=side,
            n_whole=n_whole,
            canvases=_canvases(image_processor),
            n_selected=-int(processor.vision_feature_select_strategy == "default"),
            max_tiles=_max_tiles(processor.vision_aspect_ratio),
        )
    )


def _max_tiles(name: str) -> int:
    """9 of `anyres_max_9`."""
    number = name.removeprefix("anyres_max_")
    if not number.isdecimal():
        raise UnknownProcessorError(f"vision_aspect_ratio is {name!r}")
    return int(number)


def _tile(image_processor: Described) -> tuple[int, int]:
    edge = edge_of(image_processor.size, "shortest_edge")
    is_cropped = getattr(image_processor, "do_center_crop", None)
    return (edge, edge) if edge and not is_cropped else fixed_size(image_processor)


def _canvases(image_processor: Described) -> tuple[tuple[int, int], ...]:
    return tuple((height, width) for height, width in image_processor.image_grid_pinpoints)
