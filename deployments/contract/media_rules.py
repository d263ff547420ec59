"""How many ids of a prompt an image or a sound becomes, as a model's card says it.

Free of torch: ingresses make the final ids, from sizes alone.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum


class MediaKind(StrEnum):
    """The kind of a medium. A template knows the parts of a message by the same names."""

    IMAGE = "image"
    AUDIO = "audio"


class MediaSizeError(ValueError):
    """The model can't take a medium of this size; the message says why."""


def check_ratio(width: int, height: int, most: int) -> None:
    """Raises MediaSizeError for an image of which a side is more than `most` times the other."""
    if max(width, height) > most * min(width, height):
        raise MediaSizeError(
            f"is {width} x {height} pixels; for this model no side may be more than {most} times "
            "the other"
        )


@dataclass(frozen=True, slots=True)
class Expansion:
    """The text of one medium in a prompt. It has the model's placeholder once for each of `runs`,
    which says how many ids that one becomes.

    columns: ids of a line, for a model that positions them by line and column. 0: it counts them.
    """

    text: str
    runs: tuple[int, ...]
    columns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """How a model's prompts have media of one kind.

    marker: stands for one medium in a prompt that a template has made.
    placeholder, placeholder_id: the token at whose positions the vectors of a medium stand.
    framed: the marker with what a template writes around it.
    """

    marker: str
    placeholder: str
    placeholder_id: int
    framed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRules(KindRules, ABC):
    @abstractmethod
    def expand(self, width: int, height: int) -> Expansion:
        """Raises MediaSizeError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioRules(KindRules, ABC):
    """`max_samples` is None for no limit. transcript_form: of a prompt for a transcript, with
    {sound} and {language}; "" for a model that is asked in words.
    """

    sampling_rate: int  # of the samples that the model takes
    max_samples: int | None
    transcript_form: str = ""

    @abstractmethod
    def expand(self, n_samples: int) -> Expansion:
        """Raises MediaSizeError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRules:
    """The media that a model can see and hear, beside text. None for those that it can't."""

    images: ImageRules | None = None
    audio: AudioRules | None = None

    @property
    def kinds(self) -> tuple[MediaKind, ...]:
        """The kinds in the order in which modalities are listed."""
        found = {MediaKind.IMAGE: self.images, MediaKind.AUDIO: self.audio}
        return tuple(kind for kind, rules in found.items() if rules is not None)
