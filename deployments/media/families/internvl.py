"""InternVL in Hugging Face's form: an image is cut into tiles, and is seen whole beside them."""

from dataclasses import dataclass

from deployments.contract.media_rules import Expansion, ImageRules, MediaRules
from deployments.media.families.described import Described, image_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasImageRules(ImageRules):
    """`canvases` have columns and rows of tiles. Without any an image is one tile."""

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


def internvl_rules(processor: Described) -> MediaRules:
    image_processor = processor.image_processor
    fewest, most = image_processor.min_patches, image_processor.max_patches
    return MediaRules(
        images=CanvasImageRules(
            **image_fields(processor),
            tile_height=image_processor.size["height"],
            tile_width=image_processor.size["width"],
            canvases=_canvases(fewest, most) if most > 1 else (),
            n_tile=processor.image_seq_length,
            before=processor.start_image_token,
            after=processor.end_image_token,
        )
    )


def _canvases(fewest: int, most: int) -> tuple[tuple[int, int], ...]:
    sides = range(1, most + 1)
    found = ((columns, rows) for columns in sides for rows in sides)
    fitting = (canvas for canvas in found if fewest <= canvas[0] * canvas[1] <= most)
    return tuple(sorted(fitting, key=lambda canvas: canvas[0] * canvas[1]))
