"""An image or a sound that has been decoded once, and the pieces of a file that has such media."""

from dataclasses import dataclass, field
from enum import StrEnum

from deployments.contract.media_rules import MediaKind


class WantedForm(StrEnum):
    """The form that the data of a medium are to have."""

    FILE = "file"  # as it came, or as PNG where its pixels were changed
    PIXELS = "pixels"  # RGB, row by row
    SAMPLES = "samples"  # one channel of float32, little endian
    SPEECH = "speech"  # one channel of 16 bits, little endian


@dataclass(frozen=True, slots=True, kw_only=True)
class Medium:
    """`data` is what was wanted of it. `digest` is of the decoded content: pixels with their size,
    or samples with their rate.

    width, height: of an image, in pixels. n_frames, rate: of a sound, before it is resampled.
    """

    kind: MediaKind
    data: bytes = field(repr=False)
    digest: bytes
    width: int = 0
    height: int = 0
    n_frames: int = 0
    rate: int = 0

    def n_samples(self, rate: int) -> int:
        """Returns the number of samples of a sound that is resampled to this rate."""
        return resampled_length(self.n_frames, self.rate, rate)


@dataclass(frozen=True, slots=True)
class DecodedPiece:
    """A part of a file in a prompt: a page of a document has a text and may have an image."""

    text: str
    medium: Medium | None = None


def resampled_length(n_frames: int, rate: int, new_rate: int) -> int:
    """At least one sample, whatever the rates."""
    return max(1, -(-n_frames * new_rate // rate))
