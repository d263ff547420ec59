"""Pixtral and Mistral 3: an image keeps its proportions, and a token ends each row of patches."""

from dataclasses import dataclass
from math import ceil, floor

from deployments.contract.media_rules import Expansion, ImageRules, MediaRules, MediaSizeError
from deployments.media.families.described import Described, edge_of, image_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RowImageRules(ImageRules):
    """`square` is the side of what becomes one id, in pixels."""

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


def pixtral_rules(processor: Described) -> MediaRules:
    size = processor.image_processor.size
    edge = edge_of(size, "longest_edge")
    return MediaRules(
        images=RowImageRules(
            **image_fields(processor),
            square=processor.patch_size * processor.spatial_merge_size,
            max_height=edge or size["height"],
            max_width=edge or size["width"],
            row_end=processor.image_break_token,
            end=processor.image_end_token,
        )
    )
