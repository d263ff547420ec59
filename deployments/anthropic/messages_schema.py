"""The bodies of POST /v1/messages and count_tokens. Each field is honoured or refused by name."""

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from deployments.anthropic.blocks import (
    AnthropicAssistantMessage,
    CacheControl,
    EmptyOptions,
    Message,
    PlainText,
    RedactedThinkingBlock,
    ThinkingBlock,
)
from deployments.anthropic.context_edits import ContextManagement
from deployments.anthropic.thinking_signatures import has_thinking
from deployments.anthropic.tools_schema import (
    AnthropicCustomTool,
    AnthropicNamedChoice,
    AnyChoice,
    ServerTool,
    ToolChoice,
    ToolList,
)
from deployments.contract.errors import refused
from deployments.ingress.generation.plan import PlanOptions
from deployments.ingress.http.schema import MAX_NAME, MAX_STOPS, Items, StopString, Strict, Switch
from deployments.ingress.http.validation import parse, refuse_unsupported

MIN_THINKING_TOKENS = 1024  # as Anthropic has it

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "billing_policy": (),
    "compaction": (),
    "container": (),
    "fallback_credit_token": (),
    "fallbacks": ([],),
    "inference_geo": ("global",),
    "mcp_servers": ([],),
    "speed": ("standard",),
    "thread": (),
    "user_profile_id": (),
    "workspace_id": (),
}

Thoughts = (ThinkingBlock, RedactedThinkingBlock)
# "updates" is a summary while it thinks: here the whole thought is one.
Display = Literal["summarized", "omitted", "updates"] | None


class EnabledThinking(Strict):
    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=MIN_THINKING_TOKENS)]
    display: Display = None
    block_binding: EmptyOptions | None = None


class AdaptiveThinking(Strict):
    type: Literal["adaptive"]
    display: Display = None
    block_binding: EmptyOptions | None = None


class DisabledThinking(Strict):
    type: Literal["disabled"]


ThinkingConfig = Annotated[
    EnabledThinking | AdaptiveThinking | DisabledThinking, Field(discriminator="type")
]


class JsonFormat(Strict):
    type: Literal["json_schema"]
    json_schema: Annotated[dict[str, JsonValue], Field(alias="schema")]


class OutputConfig(Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None
    task_budget: None = None


class Diagnostics(Strict):
    """A hint for reports about cache misses, which this server does not have."""

    previous_message_id: Annotated[str, Field(max_length=512)] | None = None


class Metadata(Strict):
    user_id: Annotated[str, Field(max_length=4096)] | None = None


class PromptFields(Strict):
    """The fields that a prompt depends on."""

    model: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    messages: Annotated[Items[Message], Field(min_length=1)]
    system: str | Items[PlainText] | None = None
    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    context_management: ContextManagement | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None  # the older name of `output_config.format`
    cache_control: CacheControl | None = None

    @model_validator(mode="after")
    def _prompt_fields_agree(self) -> Self:
        self._check_tools()
        self._check_format()
        self._check_prefill()
        return self

    def _check_tools(self) -> None:
        names = [tool.name for tool in self.tools or ()]
        choice = self.tool_choice
        if len(set(names)) < len(names):
            raise refused("`tools` must have different names", "tools")
        if choice is not None and choice.type != "none" and not names:
            raise refused("`tool_choice` requires `tools`", "tool_choice")
        if isinstance(choice, AnthropicNamedChoice) and choice.name not in names:
            raise refused(
                "`tool_choice.name` must be the name of one of `tools`", "tool_choice.name"
            )
        callable_names = [tool.name for _, tool in self.custom_tools]
        if isinstance(choice, AnthropicNamedChoice) and choice.name not in callable_names:
            message = "`tool_choice.name` is a tool that only Anthropic runs"
            raise refused(message, "tool_choice.name")
        if self.forces_calls and not callable_names:
            message = "`tool_choice` requires a call, but only Anthropic runs these `tools`"
            raise refused(message, "tool_choice")

    def _check_format(self) -> None:
        if self.output_format is not None and self.output_config and self.output_config.format:
            message = (
                "`output_format` cannot be combined with `output_config.format`, its newer name"
            )
            raise refused(message, "output_format")

    def _check_prefill(self) -> None:
        last = self.messages[-1]
        if not isinstance(last, AnthropicAssistantMessage) or not last.content:
            return
        if self.answer_format is not None:
            raise refused(
                f"`{self.format_param}` cannot be combined with a last message of the assistant"
            )
        thinks = isinstance(last.content, list) and isinstance(last.content[0], Thoughts)
        if isinstance(self.thinking, EnabledThinking) and not thinks:
            message = "`thinking` requires a thinking block at the start of the last message"
            raise refused(message, "thinking")

    @property
    def custom_tools(self) -> list[tuple[int, AnthropicCustomTool]]:
        """The tools that the client runs, with their indices."""
        tools = enumerate(self.tools or ())
        return [(index, tool) for index, tool in tools if isinstance(tool, AnthropicCustomTool)]

    @property
    def loads_all_tools(self) -> bool:
        """Whether `defer_loading` has no effect: the search that would find the tools is one that
        only Anthropic runs.
        """
        return any(isinstance(tool, ServerTool) and tool.is_search for tool in self.tools or ())

    @property
    def answer_format(self) -> JsonFormat | None:
        nested = None if self.output_config is None else self.output_config.format
        return self.output_format or nested

    @property
    def format_param(self) -> str:
        return "output_config.format" if self.output_format is None else "output_format"

    @property
    def shows_thoughts(self) -> bool:
        thinking = self.thinking
        if thinking is None or isinstance(thinking, DisabledThinking):
            return True
        return thinking.display != "omitted"

    @property
    def forces_calls(self) -> bool:
        return isinstance(self.tool_choice, (AnyChoice, AnthropicNamedChoice))

    @property
    def is_heavy(self) -> bool:
        """Whether preparing takes long: there are grammars, or thinking to decompress."""
        return (
            self.answer_format is not None
            or bool(self.tools)
            or any(
                isinstance(block, ThinkingBlock) and has_thinking(block.thinking, block.signature)
                for message in self.messages
                if isinstance(message.content, list)
                for block in message.content
            )
        )

    @property
    def parallel_calls(self) -> bool:
        return self.tool_choice is None or not self.tool_choice.disable_parallel_tool_use


class CountRequest(PromptFields):
    pass


class MessagesRequest(PromptFields):
    """`max_tokens` 0 only computes and caches the prompt."""

    max_tokens: Annotated[int, Field(ge=0)]
    stream: Switch = None
    stop_sequences: Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None

    # Identity and billing: they do not change the answer.
    metadata: Metadata | None = None
    diagnostics: Diagnostics | None = None
    service_tier: Literal["auto", "standard_only"] | None = None

    @property
    def plan_options(self) -> PlanOptions:
        return PlanOptions(max_tokens=self.max_tokens, stops=tuple(self.stop_sequences or ()))

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        thinking = self.thinking
        if isinstance(thinking, EnabledThinking) and thinking.budget_tokens >= self.max_tokens:
            message = "`thinking.budget_tokens` must be less than `max_tokens`"
            raise refused(message, "thinking.budget_tokens")
        return self


def parse_messages(body: object) -> MessagesRequest:
    return parse(MessagesRequest, refuse_unsupported(body, NEUTRAL))


def parse_count(body: object) -> CountRequest:
    return parse(CountRequest, refuse_unsupported(body, NEUTRAL))
