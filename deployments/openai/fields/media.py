"""Images, sounds and files in messages of chat completions."""

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from deployments.ingress.http.schema import Strict
from deployments.media.file_types import FileKind
from deployments.media.source import DATA_SCHEME, Source

# "high" and "original" are as "auto": an image is seen as large as its model can.
Detail = Literal["auto", "low", "high", "original"]
AudioFormat = Literal[
    "wav", "mp3", "flac", "ogg", "opus", "mp4", "m4a", "webm", "aac", "mpeg", "mpga"
]
Base64 = Annotated[str, Field(min_length=1)]
FileName = Annotated[str, Field(max_length=1024)]


class Hinted(Strict):
    """Cache breakpoints are hints: every prefix is cached."""

    prompt_cache_breakpoint: JsonValue = None
    cache_control: JsonValue = None  # Anthropic's name, which gateways pass on


class ImageUrl(Strict):
    url: Annotated[str, Field(min_length=1)]
    detail: Detail | None = None


class ImagePart(Hinted):
    type: Literal["image_url"]
    image_url: ImageUrl

    def source(self, path: str) -> Source:
        return Source(
            kind=FileKind.IMAGE,
            path=f"{path}.image_url",
            url=self.image_url.url,
            is_low_detail=self.image_url.detail == "low",
        )


class InputAudio(Strict):
    data: Base64
    format: AudioFormat  # the file itself says which one it is


class AudioPart(Hinted):
    type: Literal["input_audio"]
    input_audio: InputAudio

    def source(self, path: str) -> Source:
        audio = self.input_audio
        return Source(
            kind=FileKind.AUDIO,
            path=f"{path}.input_audio",
            data=audio.data,
        )


class FileData(Strict):
    file_data: Base64
    filename: FileName | None = None
    file_id: None = None


class FilePart(Hinted):
    type: Literal["file"]
    file: FileData

    def source(self, path: str) -> Source:
        return any_file(self.file.file_data, self.file.filename, f"{path}.file")


class InputImage(Strict):
    """An image in the form of Responses."""

    type: Literal["input_image"]
    image_url: Annotated[str, Field(min_length=1)]
    detail: Detail | None = None
    file_id: None = None
    prompt_cache_breakpoint: JsonValue = None

    def source(self, path: str) -> Source:
        return Source(
            kind=FileKind.IMAGE,
            path=f"{path}.image_url",
            url=self.image_url,
            is_low_detail=self.detail == "low",
        )


class InputFile(Strict):
    """A file in the form of Responses. `detail` says how well the images of the pages are seen."""

    type: Literal["input_file"]
    file_data: Base64 | None = None
    file_url: Annotated[str, Field(min_length=1)] | None = None
    filename: FileName | None = None
    detail: Literal["auto", "high"] | None = None
    file_id: None = None
    prompt_cache_breakpoint: JsonValue = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.file_data is None) == (self.file_url is None):
            raise ValueError("must have one of file_data and file_url")
        return self

    def source(self, path: str) -> Source:
        if self.file_data is not None:
            return any_file(self.file_data, self.filename, f"{path}.file_data")
        return Source(
            kind=None,
            path=f"{path}.file_url",
            url=self.file_url or "",
            title=self.filename or "",
        )


class ResponsesAudio(Strict):
    """A sound in the form of Responses."""

    type: Literal["input_audio"]
    input_audio: InputAudio

    def source(self, path: str) -> Source:
        return Source(
            kind=FileKind.AUDIO,
            path=f"{path}.input_audio",
            data=self.input_audio.data,
        )


def any_file(data: str, name: str | None, path: str) -> Source:
    """`data` is base64, or a data: URL of it."""
    is_url = data[: len(DATA_SCHEME)].lower() == DATA_SCHEME
    return Source(
        kind=None,
        path=path,
        url=data if is_url else "",
        data="" if is_url else data,
        title=name or "",
    )
