"""The body of POST /v1/systemone: a state, and a map of typed questions about it."""

import json
from abc import abstractmethod
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from deployments.contract.errors import refused
from deployments.ingress.http.schema import ModelName, Strict
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.ingress.llamacpp.field_types import LoraFields
from deployments.openai.decisions.questions import Option, Question
from deployments.openai.decisions.schema import (
    MAX_CHOICES,
    MAX_LIGHT_QUESTIONS,
    MAX_QUESTIONS,
    Salt,
    ShortText,
)
from deployments.openai.fields.common import Identifier

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "audio": ([],),
    "images": ([],),
    "joint": (False,),
    "stream": (False,),
    "videos": ([],),
}

Criteria = dict[ShortText, ShortText | None]


class SystemOneQuestionFields(Strict):
    """`instructions` may be any JSON, and is written out then."""

    instructions: JsonValue = ""

    @property
    def text(self) -> str:
        return written(self.instructions)

    @property
    @abstractmethod
    def options(self) -> list[Option]: ...


class Noul(SystemOneQuestionFields):
    """Yes or no; `criteria` says what both mean."""

    type: Literal["noul"]
    criteria: dict[Literal["true", "false"], ShortText | None] | None = None

    @property
    def options(self) -> list[Option]:
        said = self.criteria or {}
        return [Option("yes", said.get("true") or ""), Option("no", said.get("false") or "")]


class SystemOneChoice(SystemOneQuestionFields):
    type: Literal["choice"]
    criteria: Annotated[Criteria, Field(min_length=2, max_length=MAX_CHOICES)]

    @property
    def options(self) -> list[Option]:
        return [Option(name, said or "") for name, said in self.criteria.items()]


class SystemOneScore(SystemOneQuestionFields):
    type: Literal["score"]
    criteria: Annotated[list[ShortText], Field(min_length=2, max_length=MAX_CHOICES)]

    @property
    def options(self) -> list[Option]:
        return [Option(level) for level in self.criteria]


AnyQuestion = Annotated[Noul | SystemOneChoice | SystemOneScore, Field(discriminator="type")]
Id = Annotated[str, Field(min_length=1, max_length=512)]


class SystemOneRequest(LoraFields):
    model: ModelName = None
    state: JsonValue
    questions: Annotated[dict[Id, AnyQuestion], Field(min_length=1, max_length=MAX_QUESTIONS)]
    preamble: ShortText | None = Field(default=None, alias="instructions")
    chat_template_kwargs: Annotated[dict[str, JsonValue], Field(max_length=64)] | None = None
    cache_salt: Salt | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    request_id: Identifier | None = None

    @property
    def stream(self) -> bool | None:
        return None

    @property
    def is_heavy(self) -> bool:
        return len(self.questions) > MAX_LIGHT_QUESTIONS

    @property
    def instructions(self) -> str:
        return self.preamble or ""

    @property
    def template_kwargs(self) -> dict[str, JsonValue]:
        return self.chat_template_kwargs or {}

    @property
    def about(self) -> str:
        return written(self.state)

    @property
    def asked(self) -> list[Question]:
        return [
            Question(question.text, question.options, f"questions.{name}")
            for name, question in self.questions.items()
        ]

    @model_validator(mode="after")
    def _does_not_think(self) -> Self:
        if (self.chat_template_kwargs or {}).get("enable_thinking"):
            name = "chat_template_kwargs.enable_thinking"
            raise refused(f"`{name}`: an answer is the first token, before any thought", name)
        return self


def written(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parse_systemone(body: object) -> SystemOneRequest:
    return parse(SystemOneRequest, refuse_unsupported(body, NEUTRAL))
