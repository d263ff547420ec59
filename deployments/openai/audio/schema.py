"""The fields of a transcription and of a translation, in the forms that forms have them in."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from deployments.contract.errors import refused
from deployments.ingress.http.schema import ModelName
from deployments.ingress.http.validation import parse

LISTS = ("timestamp_granularities", "include")
Format = Literal["json", "text", "srt", "vtt", "verbose_json"]


class FormFields(BaseModel):
    """Fields of a form are texts, so that numbers and switches are read from these."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class TranslationRequest(FormFields):
    model: ModelName = None
    prompt: Annotated[str, Field(max_length=16384)] = ""
    response_format: Format = "json"
    temperature: Annotated[float, Field(ge=0, le=1)] = 0.0

    @property
    def is_translation(self) -> bool:
        return True

    @property
    def is_stream(self) -> bool:
        return False

    @property
    def has_segments(self) -> bool:
        return True

    @property
    def has_words(self) -> bool:
        return False

    @property
    def spoken(self) -> str | None:
        """The code of the language that is spoken; None: it is to be found out."""
        return None


class TranscriptionRequest(TranslationRequest):
    language: Annotated[str, Field(max_length=32)] | None = None
    stream: bool = False
    timestamp_granularities: list[Literal["segment", "word"]] = Field(default_factory=list)
    chunking_strategy: Literal["auto"] | None = None
    include: Annotated[list[str], Field(max_length=0)] = Field(default_factory=list)

    @property
    def is_translation(self) -> bool:
        return False

    @property
    def is_stream(self) -> bool:
        return self.stream

    @property
    def has_segments(self) -> bool:
        return not self.timestamp_granularities or "segment" in self.timestamp_granularities

    @property
    def has_words(self) -> bool:
        return "word" in self.timestamp_granularities

    @property
    def spoken(self) -> str | None:
        return self.language.lower() if self.language else None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        name = "timestamp_granularities"
        if self.timestamp_granularities and self.response_format != "verbose_json":
            raise refused(f"`{name}` requires `response_format` verbose_json", name)
        if self.stream and self.response_format != "json":
            message = "`stream` requires `response_format` json: events have text alone"
            raise refused(message, "stream")
        return self


class TranslationForm(TranslationRequest):
    """A translation request with its file, which is not text."""

    file: bytes


class TranscriptionForm(TranscriptionRequest):
    """A transcription request with its file, which is not text."""

    file: bytes


def parse_transcription(fields: Mapping[str, Sequence[str]]) -> TranscriptionRequest:
    return parse(TranscriptionRequest, _values(fields))


def parse_translation(fields: Mapping[str, Sequence[str]]) -> TranslationRequest:
    return parse(TranslationRequest, _values(fields))


def _values(fields: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Lists have names with brackets, or come several times. An empty text is how a form says that
    a field is not given."""
    values: dict[str, object] = {}
    lists: dict[str, list[str]] = {}
    for given, written in fields.items():
        name, texts = given.removesuffix("[]"), [text for text in written if text]
        if name in LISTS:
            if texts:
                lists.setdefault(name, []).extend(texts)
        elif len(written) > 1:
            raise refused(f"The form holds {given!r} more than once", given)
        elif texts or given not in TranscriptionRequest.model_fields:
            values[given] = written[0]
    return {**values, **lists}
