"""The media of one request, once they are decoded, and how its texts refer to them.

A medium is a reference in the text of a message until the template has made a prompt of it, so that
all that joins and moves texts needs to know nothing of media. A reference has a secret of its
request, which no client can write.
"""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from deployments.media.medium import DecodedPiece, Medium
from deployments.media.source import Source

EMPTY: Mapping[Source, Sequence[DecodedPiece]] = MappingProxyType({})


class PromptMedia:
    """`pieces` are those of each source: one, or one for each page of a document. `unseen` are the
    paths of those that the model can't read, which have a text that says so.
    """

    def __init__(
        self, pieces: Mapping[Source, Sequence[DecodedPiece]] = EMPTY, unseen: Sequence[str] = ()
    ) -> None:
        self.warnings = tuple(f"{path} is described, and not shown" for path in unseen)
        self._secret = secrets.token_hex(8)
        self._media: list[Medium] = []
        self._texts = {source: self._text(source, parts) for source, parts in pieces.items()}

    def __bool__(self) -> bool:
        return bool(self._media)

    def text_of(self, source: Source) -> str:
        """Returns the text that stands for the source in a message."""
        return self._texts[source]

    def _text(self, source: Source, pieces: Sequence[DecodedPiece]) -> str:
        parts = [source.title, *(self._piece(piece) for piece in pieces)]
        return "\n\n".join(filter(None, parts))

    def _piece(self, piece: DecodedPiece) -> str:
        if piece.medium is None:
            return piece.text
        reference = f"<media-{self._secret}-{len(self._media)}>"
        self._media.append(piece.medium)
        return "\n".join(filter(None, (reference, piece.text)))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"<media-{self._secret}-([0-9]+)>")

    def split(self, text: str) -> Iterator[str | Medium]:
        """The texts and media of a text, in their order. None of the texts is empty."""
        for index, part in enumerate(self._pattern.split(text)):
            if index % 2:
                yield self._media[int(part)]
            elif part:
                yield part

    def media_in(self, text: str) -> list[Medium]:
        return [part for part in self.split(text) if isinstance(part, Medium)] if self else []

    def replace(self, text: str, marks: Mapping[str, str]) -> str:
        """The text with the mark of its kind in the place of each reference."""
        return self._pattern.sub(lambda found: marks[self._media[int(found[1])].kind], text)


NO_MEDIA = PromptMedia()
