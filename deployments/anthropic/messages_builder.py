"""Messages: makes a prompt of a conversation, and Anthropic's events or body of its reply."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from deployments.anthropic.context_edits import Fields
from deployments.anthropic.events import PING, BlockEvents, content_blocks, event
from deployments.anthropic.messages_conversation import (
    Transcript,
    conversation,
    left_out,
    sources_of,
)
from deployments.anthropic.messages_schema import CountRequest, MessagesRequest, PromptFields
from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.events import FinishReason
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import SamplingParams
from deployments.ingress.error_bodies import anthropic_envelope
from deployments.ingress.generation.plan import Plan
from deployments.ingress.generation.request_context import ReadMedia, RequestContext, reads_none
from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.generation.sampling_defaults import over_model_defaults
from deployments.ingress.http.sse import EVENT_STREAM, StreamType, encode
from deployments.ingress.routes.service import Answering
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.text.chat.conversation import prepare_prompt
from deployments.text.chat.prompt import Prompt
from deployments.text.reply import CallTracker
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer

MESSAGE_STOP = event("message_stop", b'{"type":"message_stop"}')
# Required by the SDKs' types; they are of features that only Anthropic has.
ANTHROPIC_ONLY = {"container": None, "stop_details": None}


class AnthropicResponseBuilder(ResponseBuilder[MessagesRequest]):
    stream_type: ClassVar[StreamType] = EVENT_STREAM._replace(keep_alive=PING)
    _request: MessagesRequest
    _head: dict[str, object]
    _blocks: BlockEvents
    _limit_reason: str  # the `stop_reason` of an answer that reaches its limit

    def __init__(self, request_id: str, read_media: ReadMedia = reads_none) -> None:
        self._request_id = request_id
        self._read_media = read_media
        self._media = NO_MEDIA
        self._started = False
        self._call_tracker = CallTracker()
        self._context: dict[str, object] = {}  # what `context_management` removed
        self._last = TextDelta()

    async def recall(self, request: MessagesRequest, card: ModelCard) -> None:
        self._media = await self._read_media(sources_of(request), card)

    def prepare(
        self, request: MessagesRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        edited = _edited(request, card, tokenizer, self._media)
        prompt = edited.prompt
        room = _room(prompt, card)
        message_id = f"msg_{uuid.uuid4().hex}"
        self._request = request
        self._head = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": card.answers_as,
        }
        if request.context_management is not None:
            self._context = {"context_management": {"applied_edits": edited.reports}}
        self._blocks = BlockEvents(shows_thoughts=request.shows_thoughts)
        fits = request.max_tokens <= room
        self._limit_reason = "max_tokens" if fits else "model_context_window_exceeded"
        warned = replace(prompt, warnings=(*prompt.warnings, *left_out(request)))
        planned = Plan(
            card=card,
            tokenizer=tokenizer,
            response_id=message_id,
            prompts=[warned],
            sampling=_sampling(request, card),
            prompt_param="messages",
            options=request.plan_options,
        )
        return planned.generations()

    def format_stream_start(self) -> bytes:
        return b""  # the first delta carries the number of cached tokens

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        start = b"" if self._started else self._start(usage)
        self._started, self._last = True, delta
        self._call_tracker.add(delta.pieces)
        return start + self._blocks.write(delta.pieces)

    def format_stream_end(self, usage: Usage) -> bytes:
        reason, sequence = self._ending(self._last, self._call_tracker)
        payload = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence, **ANTHROPIC_ONLY},
            "usage": _counts(usage),
            **self._context,
        }
        return self._blocks.close() + event("message_delta", encode(payload)) + MESSAGE_STOP

    def format_stream_error(self, error: RequestError) -> bytes:
        _, body = anthropic_envelope(error, self._request_id)
        return event("error", encode(body))

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        [delta] = choices
        content = content_blocks(delta.pieces, shows_thoughts=self._request.shows_thoughts)
        reason, sequence = self._ending(delta, CallTracker(delta.pieces))
        message = self._message(content, reason, sequence, usage_object(usage))
        return encode(message | self._context)

    def _start(self, usage: Usage) -> bytes:
        nothing_yet = {**usage_object(usage), "output_tokens": 0, "output_tokens_details": None}
        message = self._message([], None, None, nothing_yet)
        return event("message_start", encode({"type": "message_start", "message": message})) + PING

    def _message(
        self, content: object, reason: str | None, sequence: str | None, usage: object
    ) -> dict[str, object]:
        ending = {"stop_reason": reason, "stop_sequence": sequence}
        return {
            **self._head,
            "content": content,
            **ending,
            **ANTHROPIC_ONLY,
            "diagnostics": None,
            "usage": usage,
        }

    def _ending(self, delta: TextDelta, call_tracker: CallTracker) -> tuple[str, str | None]:
        if isinstance(delta.stop, str):
            return "stop_sequence", delta.stop
        if delta.finish_reason is FinishReason.LENGTH:
            return self._limit_reason, None
        return ("tool_use" if call_tracker.ends_in_call else "end_turn"), None


async def count_tokens(
    context: RequestContext, asked: CountRequest, card: ModelCard
) -> Answering[CountRequest]:
    return partial(_count_tokens, await context.read_media(sources_of(asked), card))


def _count_tokens(
    media: PromptMedia, request: CountRequest, card: ModelCard, tokenizer: TextTokenizer
) -> object:
    edited = _edited(request, card, tokenizer, media)
    counted: dict[str, object] = {"input_tokens": len(edited.prompt.ids)}
    if request.context_management is not None:
        counted["context_management"] = {"original_input_tokens": edited.original_tokens}
    return counted


@dataclass(frozen=True, slots=True)
class EditedPrompt:
    """The prompt after `context_management`, what its edits report, and the tokens before them."""

    prompt: Prompt
    reports: list[Fields]
    original_tokens: int


def _edited(
    request: PromptFields, card: ModelCard, tokenizer: TextTokenizer, media: PromptMedia
) -> EditedPrompt:
    transcript = Transcript(request, media)
    talk = conversation(request, transcript)
    prompts: list[tuple[Sequence[Fields], Prompt]] = []  # each is prepared once

    def prompt_of(messages: Sequence[Fields]) -> Prompt:
        found = next((prompt for known, prompt in prompts if known is messages), None)
        if found is None:
            found = prepare_prompt(replace(talk, messages=messages), card, tokenizer)
            prompts.append((messages, found))
        return found

    def count(messages: Sequence[Fields]) -> int:
        return len(prompt_of(messages).ids)

    messages: Sequence[Fields] = transcript.messages
    reports: list[Fields] = []
    if request.context_management is not None:
        messages, reports = request.context_management.edited(messages, count)
    return EditedPrompt(prompt_of(messages), reports, count(transcript.messages))


def usage_object(usage: Usage) -> dict[str, object]:
    return {
        **_counts(usage),
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "service_tier": "standard",
        "inference_geo": None,
        "speed": None,
    }


def _counts(usage: Usage) -> dict[str, object]:
    """The first three add up to the prompt."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        **usage.cached_details,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.thought_tokens},
        "server_tool_use": None,
    }


def _room(prompt: Prompt, card: ModelCard) -> int:
    """Tokens that fit after the prompt. Agents parse the words and numbers of this error to shorten
    their history.
    """
    tokens, maximum = len(prompt.ids), card.context_length - 1
    if tokens > maximum:
        message = f"prompt is too long: {tokens} tokens > {maximum} maximum"
        raise Refused.of_kind(ErrorKind.CONTEXT_LENGTH, message)
    return card.context_length - tokens


def _sampling(request: MessagesRequest, card: ModelCard) -> SamplingParams:
    return over_model_defaults(
        card,
        {"temperature": request.temperature, "top_p": request.top_p, "top_k": request.top_k},
    )
