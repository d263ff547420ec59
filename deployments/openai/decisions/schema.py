"""The body of POST /v1/decisions, as OpenAI's SDK has it: an input and typed questions about it."""

import json
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from deployments.contract.errors import refused
from deployments.ingress.http.schema import Items, ModelName, Strict
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.ingress.llamacpp.field_types import LoraFields
from deployments.openai.decisions.questions import Option, Question
from deployments.openai.fields.common import CacheOptions, Identifier

MAX_QUESTIONS = 400
MAX_CHOICES = 255
MAX_LIGHT_QUESTIONS = 4
ROLE_NAMES = {"user": "User", "developer": "Developer", "system": "System"}

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {"joint": (False,), "stream": (False,)}

Text = Annotated[str, Field(max_length=10_485_760)]
ShortText = Annotated[str, Field(max_length=1_048_576)]
Salt = Annotated[str, Field(min_length=1, max_length=1024)]
Status = Literal["in_progress", "completed", "incomplete"] | None


class Breakpoint(Strict):
    """A hint: every prefix is cached."""

    mode: Literal["explicit"]


class DecisionTextPart(Strict):
    type: Literal["input_text"]
    text: Text
    prompt_cache_breakpoint: Breakpoint | None = None


class JsonPart(Strict):
    type: Literal["input_json"]
    data: dict[str, JsonValue] | Items[dict[str, JsonValue]]

    @property
    def text(self) -> str:
        return json.dumps(self.data, ensure_ascii=False)


class OutputTextPart(Strict):
    type: Literal["output_text"]
    text: Text


class DecisionRefusalPart(Strict):
    type: Literal["refusal"]
    refusal: Text

    @property
    def text(self) -> str:
        return self.refusal


InputPart = Annotated[DecisionTextPart | JsonPart, Field(discriminator="type")]
AssistantPart = Annotated[OutputTextPart | DecisionRefusalPart, Field(discriminator="type")]
QuestionText = ShortText | Annotated[Items[InputPart], Field(min_length=1)]


class DecisionUserMessage(Strict):
    type: Literal["message"] | None = None
    role: Literal["user"]
    content: Text | Items[InputPart]


class OperatorMessage(Strict):
    type: Literal["message"] | None = None
    role: Literal["developer", "system"]
    content: Text | Items[DecisionTextPart]


class DecisionAssistantMessage(Strict):
    type: Literal["message"] | None = None
    role: Literal["assistant"]
    content: Text | Items[AssistantPart]
    phase: Literal["commentary", "final_answer"] | None = None


class DecisionFunctionCall(Strict):
    type: Literal["function_call"]
    call_id: Identifier
    name: Identifier
    arguments: Text
    id: Identifier | None = None
    namespace: Identifier | None = None
    status: Status = None


class DecisionCustomToolCall(Strict):
    type: Literal["custom_tool_call"]
    call_id: Identifier
    name: Identifier
    input: Text
    id: Identifier | None = None
    namespace: Identifier | None = None
    status: Status = None


class DecisionCallOutput(Strict):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: Identifier
    output: Text | Items[DecisionTextPart]
    id: Identifier | None = None
    status: Status = None


Item = (
    DecisionUserMessage
    | OperatorMessage
    | DecisionAssistantMessage
    | DecisionFunctionCall
    | DecisionCustomToolCall
    | DecisionCallOutput
)


class QuestionFields(Strict):
    """Each kind says which options it has."""

    instructions: QuestionText
    name: ShortText | None = None

    @property
    @abstractmethod
    def options(self) -> list[Option]: ...

    def question(self, param: str) -> Question:
        return Question(_text(self.instructions), self.options, param)


class Predicate(QuestionFields):
    """How likely a statement is true: the first option."""

    type: Literal["predicate"]

    @property
    def options(self) -> list[Option]:
        return [Option("true"), Option("false")]


class ChoiceOption(Strict):
    value: str | bool
    description: ShortText | None = None


class Choice(QuestionFields):
    type: Literal["choice"]
    choices: Annotated[list[ChoiceOption], Field(min_length=2, max_length=MAX_CHOICES)]

    @property
    def options(self) -> list[Option]:
        return [
            Option(choice.value if isinstance(choice.value, str) else json.dumps(choice.value),
                   choice.description or "")
            for choice in self.choices
        ]  # fmt: skip

    @model_validator(mode="after")
    def _choices_differ(self) -> Self:
        if len({(type(choice.value), choice.value) for choice in self.choices}) < len(self.choices):
            raise ValueError("must be choices that differ")
        return self


class Level(Strict):
    label: ShortText
    description: ShortText | None = None


class Score(QuestionFields):
    type: Literal["score"]
    levels: Annotated[list[Level], Field(min_length=2, max_length=MAX_CHOICES)]

    @property
    def options(self) -> list[Option]:
        return [Option(level.label, level.description or "") for level in self.levels]


AnyQuestion = Annotated[Predicate | Choice | Score, Field(discriminator="type")]


class DecisionRequest(LoraFields):
    model: ModelName = None
    input: Text | Annotated[Items[Item], Field(min_length=1)]
    questions: Annotated[list[AnyQuestion], Field(min_length=1, max_length=MAX_QUESTIONS)]
    prompt_cache_key: Identifier | None = None
    prompt_cache_options: CacheOptions | None = None
    safety_identifier: Identifier | None = None
    cache_salt: Salt | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    instructions: ClassVar[str] = ""
    request_id: ClassVar[str | None] = None
    template_kwargs: ClassVar[dict[str, object]] = {}

    @property
    def stream(self) -> bool | None:
        return None

    @property
    def is_heavy(self) -> bool:
        return len(self.questions) > MAX_LIGHT_QUESTIONS

    @property
    def about(self) -> str:
        if isinstance(self.input, str):
            return self.input
        if len(self.input) == 1 and isinstance(self.input[0], DecisionUserMessage):
            return _text(self.input[0].content)
        return "\n\n".join(map(_spoken, self.input))

    @property
    def asked(self) -> list[Question]:
        return [question.question(f"questions[{i}]") for i, question in enumerate(self.questions)]

    @model_validator(mode="after")
    def _outputs_have_calls(self) -> Self:
        called: set[str] = set()
        for index, item in enumerate(self.input if isinstance(self.input, list) else []):
            if isinstance(item, DecisionFunctionCall | DecisionCustomToolCall):
                called.add(item.call_id)
            elif isinstance(item, DecisionCallOutput) and item.call_id not in called:
                param = f"input[{index}].call_id"
                raise refused(f"`{param}`: no call before it has this id", param)
        return self


def _spoken(item: Item) -> str:
    """An item of a conversation, as a line of a play."""
    match item:
        case DecisionFunctionCall():
            return f"Assistant calls {item.name} with {item.arguments}"
        case DecisionCustomToolCall():
            return f"Assistant calls {item.name} with {item.input}"
        case DecisionCallOutput():
            return f"Result: {_text(item.output)}"
        case DecisionAssistantMessage():
            return f"Assistant: {_text(item.content)}"
    return f"{ROLE_NAMES[item.role]}: {_text(item.content)}"


Parts = list[InputPart] | list[DecisionTextPart] | list[AssistantPart]


def _text(content: str | Parts) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def parse_decisions(body: object) -> DecisionRequest:
    return parse(DecisionRequest, refuse_unsupported(body, NEUTRAL))
