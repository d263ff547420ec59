"""Chat completions: a conversation to one prompt, and its choices to OpenAI's chunks and body."""

import uuid
from collections.abc import Sequence

from deployments.ingress.body import parse_json
from deployments.ingress.builder import Generation, ResponseBuilder, Usage
from deployments.ingress.errors import refused
from deployments.ingress.sse import encode, encode_text
from deployments.openai.chat_schema import (
    AssistantMessage,
    ChatRequest,
    Message,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolMessage,
)
from deployments.openai.frames import Frames, finite
from deployments.openai.generations import plan, sampling_params
from deployments.text.stream import PlacedLogprob, TextDelta
from deployments.text.tokenizer import TextTokenizer
from deployments.wire import ModelCard, Refused, RequestError

ROLE = b'{"role":"assistant","content":"","refusal":null}'
NULL = b"null"


class OpenAIResponseBuilder(ResponseBuilder[ChatRequest]):
    _frames: Frames
    _tokenizer: TextTokenizer
    _choices: int
    _logprobs: bool

    def prepare(
        self, request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        response_id = f"chatcmpl-{uuid.uuid4().hex}"
        self._frames = Frames(
            request,
            card.name,
            response_id,
            kind="chat.completion",
            chunk_kind="chat.completion.chunk",
        )
        self._tokenizer = tokenizer
        self._choices = request.n or 1
        self._logprobs = bool(request.logprobs)
        alternatives = (request.top_logprobs or 0) if self._logprobs else None
        sampling = sampling_params(request, card, alternatives)
        planned = plan(request, card, tokenizer, response_id, sampling, "messages")
        prompt = render(request, card, tokenizer)
        return planned.generations([tokenizer.encode(prompt, add_special_tokens=False)])

    def format_stream_start(self) -> bytes:
        return b"".join(
            self._frames.chunk(_choice(choice, ROLE, NULL, NULL)) for choice in range(self._choices)
        )

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        frames = b""
        if delta.text or delta.logprobs:
            content = b'{"content":' + encode_text(delta.text) + b"}"
            logprobs = encode(self._entries(delta)) if self._logprobs else NULL
            frames = self._frames.chunk(_choice(choice, content, logprobs, NULL), usage)
        if delta.finish_reason is not None:
            reason = encode_text(delta.finish_reason)
            frames += self._frames.chunk(_choice(choice, b"{}", NULL, reason), usage)
        return frames

    def format_stream_end(self, usage: Usage) -> bytes:
        return self._frames.end(usage)

    def format_stream_error(self, error: RequestError) -> bytes:
        return self._frames.error(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        formatted: list[object] = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._entries(choice) if self._logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(choices)
        ]
        return self._frames.body(formatted, usage)

    def _entries(self, delta: TextDelta) -> object:
        return {"content": [self._entry(entry) for entry in delta.logprobs], "refusal": None}

    def _entry(self, entry: PlacedLogprob) -> object:
        token = entry.token
        top = [self._token(token_id, logprob) for token_id, logprob in token.top]
        return {**self._token(token.token_id, token.logprob), "top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> dict[str, object]:
        raw = self._tokenizer.token_bytes(token_id)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": finite(logprob), "bytes": list(raw)}


def _choice(index: int, delta: bytes, logprobs: bytes, finish_reason: bytes) -> bytes:
    parts = (index, delta, logprobs, finish_reason)
    return b'{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}' % parts


def render(request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer) -> str:
    """The prompt of the conversation. Raises Refused."""
    continues = bool(request.continue_final_message)
    generation_prompt = request.add_generation_prompt
    return tokenizer.render_chat(
        [plain(place, message, card) for place, message in enumerate(request.messages)],
        add_generation_prompt=not continues if generation_prompt is None else generation_prompt,
        continue_final_message=continues,
        template_kwargs=request.chat_template_kwargs or {},
    )


def plain(place: int, message: Message, card: ModelCard) -> dict[str, object]:
    """A message as templates expect it: text in one piece, arguments as an object."""
    fields: dict[str, object] = {"role": message.role, "content": spoken(message.content)}
    if message.role == "developer" and "developer" not in (card.chat_template or ""):
        fields["role"] = "system"
    if message.name is not None:
        fields["name"] = message.name
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage):
        fields |= plain_answer(place, message)
    return fields


def plain_answer(place: int, message: AssistantMessage) -> dict[str, object]:
    fields: dict[str, object] = {}
    if message.content is None:
        fields["content"] = message.refusal or ""
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        fields["reasoning_content"] = reasoning
    if message.tool_calls:
        path = f"messages[{place}].tool_calls"
        fields["tool_calls"] = [
            plain_call(f"{path}[{index}]", call) for index, call in enumerate(message.tool_calls)
        ]
    return fields


def plain_call(path: str, call: ToolCall) -> dict[str, object]:
    param = f"{path}.function.arguments"
    try:
        arguments = parse_json((call.function.arguments or "{}").encode())
    except Refused as refusal:
        raise refused(f"`{param}` is not JSON", param) from refusal
    if not isinstance(arguments, dict):
        raise refused(f"`{param}` must be a JSON object", param)
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": call.type, "function": function}


def spoken(content: str | Sequence[TextPart | RefusalPart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content)
