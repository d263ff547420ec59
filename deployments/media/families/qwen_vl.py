"""Qwen's VL models: an image keeps its proportions, with an id for each square of merged patches.

Source of the rounding: Qwen's `smart_resize`.
"""

from dataclasses import dataclass
from math import ceil, floor, sqrt

from deployments.contract.media_rules import Expansion, ImageRules, MediaRules, check_ratio
from deployments.media.families.described import Described, image_fields

MAX_RATIO = 200  # of an image's sides


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPatchImageRules(ImageRules):
    """`square` is the side of what becomes one id, in pixels."""

    square: int
    min_pixels: int
    max_pixels: int

    def expand(self, width: int, height: int) -> Expansion:
        check_ratio(width, height, MAX_RATIO)
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


def qwen_vl_rules(processor: Described) -> MediaRules:
    image_processor, token = processor.image_processor, processor.image_token
    return MediaRules(
        images=MergedPatchImageRules(
            **image_fields(processor, f"<|vision_start|>{token}<|vision_end|>"),
            square=image_processor.patch_size * image_processor.merge_size,
            min_pixels=image_processor.size["shortest_edge"],
            max_pixels=image_processor.size["longest_edge"],
        )
    )
