"""Idefics 3 and SmolVLM: an image is cut into rows of frames, and is seen whole, too."""

from dataclasses import dataclass
from math import ceil

from deployments.contract.media_rules import Expansion, ImageRules, MediaRules
from deployments.media.families.described import Described, edge_of, kind_fields

MAX_SIDE = 4096  # of an image that is cut into frames, in pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedImageRules(ImageRules):
    """side: of a frame, in pixels.

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


def idefics3_rules(processor: Described) -> MediaRules:
    image_processor, token = processor.image_processor, processor.image_token
    long_side = edge_of(image_processor.size, "longest_edge")
    return MediaRules(
        images=FramedImageRules(
            **kind_fields(token, token, processor.image_token_id),
            side=image_processor.max_image_size["longest_edge"],
            long_side=long_side if image_processor.do_resize else None,
            is_cut=bool(image_processor.do_image_splitting),
            n_frame=processor.image_seq_len,
            fake=processor.fake_image_token,
            whole=getattr(processor, "global_image_tag", None) or processor.global_image_token,
        )
    )
