"""The body of POST /v1/responses. Each field is honoured or refused by name."""

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from deployments.contract.errors import refused
from deployments.ingress.generation.plan import PlanOptions
from deployments.ingress.http.schema import NAME, Items, Strict, Switch, without_nulls
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.openai.fields.common import CommonFields, Verbosity
from deployments.openai.responses.items import (
    Item,
    MessageItem,
    ReferenceItem,
    SearchOutputItem,
    StoredId,
    ToolsItem,
    typed,
)
from deployments.openai.responses.tools import ToolChoice, ToolList

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "access_programs": (),
    "background": (False,),
    "background_options": (),
    "context_management": ([],),
    "image": (),
    "moderation": (),
    "personality": (),
    "prompt": (),
}
MAX_INCLUDES = 64
LOGPROBS = "message.output_text.logprobs"
ENCRYPTED_THOUGHTS = "reasoning.encrypted_content"
# Only the first two have an effect. The others are details of items that do not occur here.
Includable = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class ResponsesTextFormat(Strict):
    type: Literal["text"]


class ResponsesJsonObjectFormat(Strict):
    type: Literal["json_object"]


class ResponsesJsonSchemaFormat(Strict):
    """A JSON Schema for the answer. Without `strict`, parts that are not supported are left out."""

    type: Literal["json_schema"]
    name: Annotated[str, Field(pattern=NAME)]
    json_schema: dict[str, JsonValue] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


Format = Annotated[
    Annotated[
        ResponsesTextFormat | ResponsesJsonObjectFormat | ResponsesJsonSchemaFormat,
        Field(discriminator="type"),
    ],
    BeforeValidator(without_nulls),
]


class TextConfig(Strict):
    format: Format | None = None
    verbosity: Verbosity | None = None


class Reasoning(Strict):
    """A summary of any kind is the whole thought. With the `context` "current_turn" the thoughts
    before the user's last message are not in the prompt.
    """

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard"] | None = None

    @model_validator(mode="after")
    def _join_summaries(self) -> Self:
        """`generate_summary` is the older name."""
        if self.generate_summary is not None:
            if self.summary not in (None, self.generate_summary):
                param = "reasoning.generate_summary"
                raise refused(f"`{param}` must equal `summary`, its newer name", param)
            self.summary = self.generate_summary
        return self


class ResponsesStreamOptions(Strict):
    include_obfuscation: Literal[False] | None = None


InputItem = Annotated[
    Annotated[Item | ReferenceItem, Field(discriminator="type")],
    BeforeValidator(typed),
]


class ConversationName(Strict):
    id: StoredId


class ResponsesRequest(CommonFields):
    input: str | Items[InputItem] | None = None
    instructions: str | None = None
    previous_response_id: StoredId | None = None
    conversation: StoredId | ConversationName | None = None
    store: Switch = None
    stream_options: ResponsesStreamOptions | None = None
    include: Annotated[list[Includable], Field(max_length=MAX_INCLUDES)] | None = None
    truncation: Literal["auto", "disabled"] | None = None

    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: Switch = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None

    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = (
        None  # of built-in tools, of which there are none
    )
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    # Identity, as OpenAI's own agents send it: it does not change the answer.
    client_metadata: Annotated[dict[str, JsonValue], Field(max_length=64)] | None = None

    # Not OpenAI's on this endpoint; the other endpoints accept it, too.
    chat_template_kwargs: dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        says = any(not isinstance(item, ToolsItem) for _, item in self.items)
        if not says and self.previous_response_id is None and self.conversation is None:
            raise refused("`input` is required and must not be empty", "input")
        if self.conversation is not None and self.previous_response_id is not None:
            message = "`previous_response_id` cannot be combined with `conversation`"
            raise refused(message, "previous_response_id")
        if self.stream_options is not None and not self.stream:
            raise refused("`stream_options` requires `stream`: true", "stream_options")
        if self.top_logprobs and not self.wants_logprobs:
            raise refused(f'`top_logprobs` requires `include`: ["{LOGPROBS}"]', "top_logprobs")
        return self

    @property
    def plan_options(self) -> PlanOptions:
        return replace(super().plan_options, max_tokens=self.max_output_tokens)

    @property
    def is_heavy(self) -> bool:
        """Whether preparing takes long: there is an earlier conversation, or a grammar."""
        continues = self.previous_response_id is not None or self.conversation is not None
        recalls = continues or any(
            isinstance(item, ReferenceItem | ToolsItem | SearchOutputItem) for _, item in self.items
        )
        return recalls or self.format.type != "text" or bool(self.tools)

    @property
    def items(self) -> list[tuple[str, Item | ReferenceItem]]:
        """The request's own items, each with its path."""
        if isinstance(self.input, str):
            return [("input[0]", MessageItem(role="user", content=self.input))]
        return [(f"input[{index}]", item) for index, item in enumerate(self.input or ())]

    @property
    def conversation_id(self) -> str | None:
        given = self.conversation
        return given.id if isinstance(given, ConversationName) else given

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ())

    @property
    def wants_encrypted_thoughts(self) -> bool:
        return ENCRYPTED_THOUGHTS in (self.include or ())

    @property
    def forgets_earlier_thoughts(self) -> bool:
        return self.reasoning is not None and self.reasoning.context == "current_turn"

    @property
    def wants_summary(self) -> bool:
        return self.reasoning is not None and self.reasoning.summary is not None

    @property
    def format(self) -> ResponsesTextFormat | ResponsesJsonObjectFormat | ResponsesJsonSchemaFormat:
        given = self.text.format if self.text is not None else None
        return given or ResponsesTextFormat(type="text")


def parse_response_request(body: object) -> ResponsesRequest:
    return parse(ResponsesRequest, refuse_unsupported(body, NEUTRAL))
