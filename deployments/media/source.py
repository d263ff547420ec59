"""A medium as a request names it: base64, or a URL. Nothing of it is read here."""

from dataclasses import dataclass, field

from deployments.contract.errors import refused
from deployments.media.file_types import FileKind

FILE_SCHEME, DATA_SCHEME = "file://", "data:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`path` is the field that errors name. Sources that differ in it alone are one medium.

    kind: that it has to be; None: it is what its bytes say. What a request declares of a file
        beside decides nothing.
    file: itself, or else
    data: base64, unless there is a `url`, which may hold it, too.
    title: of a document, for the model.
    from_tool: whether a tool has returned it.
    """

    kind: FileKind | None
    path: str = field(compare=False)
    file: bytes = field(default=b"", repr=False)
    data: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    is_low_detail: bool = False
    title: str = ""
    from_tool: bool = field(default=False, compare=False)

    @property
    def is_inline(self) -> bool:
        """Whether the request has the file itself."""
        return not self.url or self._begins(DATA_SCHEME)

    @property
    def file_path(self) -> str | None:
        """The path of a `file://` URL, relative to the media folder; None for other sources."""
        return self.url[len(FILE_SCHEME) :].lstrip("/") if self._begins(FILE_SCHEME) else None

    def _begins(self, scheme: str) -> bool:
        return self.url[: len(scheme)].lower() == scheme

    def inline(self) -> str:
        """The base64 of a source that is inline. Raises Refused."""
        if not self.url:
            return self.data
        head, comma, data = self.url[len(DATA_SCHEME) :].partition(",")
        _, *parameters = head.split(";")
        if not comma or "base64" not in (given.strip().lower() for given in parameters):
            raise refused(f"`{self.path}` must have base64 in its data: URL", self.path)
        return data
