"""Gemma 4: an image keeps its proportions, and has an id for each square of pooled patches."""

from dataclasses import dataclass
from math import floor, sqrt

from deployments.contract.media_rules import Expansion, ImageRules, MediaRules, MediaSizeError
from deployments.media.families.described import Described, kind_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledImageRules(ImageRules):
    """`square` is the side of what becomes one id, in pixels, and `max_ids` the most of these."""

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


def gemma4_rules(processor: Described) -> MediaRules:
    image_processor, token = processor.image_processor, processor.image_token
    return MediaRules(
        images=PooledImageRules(
            **kind_fields(token, token, processor.image_token_id),
            square=image_processor.patch_size * image_processor.pooling_kernel_size,
            max_ids=image_processor.max_soft_tokens,
            before=processor.boi_token,
            after=processor.eoi_token,
        )
    )
