"""Legacy completions: each prompt continued as it is, in OpenAI's oldest shape."""

import uuid
from collections.abc import Sequence

from deployments.ingress.builder import Generation, ResponseBuilder, Usage
from deployments.ingress.plan import check_ids
from deployments.ingress.sse import encode, encode_text
from deployments.openai.completions_schema import CompletionRequest
from deployments.openai.frames import Frames, finite
from deployments.openai.generations import plan, sampling_params
from deployments.text.stream import TextDelta
from deployments.text.tokenizer import TextTokenizer
from deployments.wire import ModelCard, RequestError, TokenLogprob

KIND = "text_completion"
NULL = b"null"


class CompletionsResponseBuilder(ResponseBuilder[CompletionRequest]):
    _frames: Frames
    _tokenizer: TextTokenizer
    _echoes: list[str]  # one a choice: its prompt if the request wants it back
    _logprobs: bool

    def prepare(
        self, request: CompletionRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        response_id = f"cmpl-{uuid.uuid4().hex}"
        self._frames = Frames(request, card.name, response_id, kind=KIND, chunk_kind=KIND)
        self._tokenizer = tokenizer
        self._logprobs = request.logprobs is not None
        self._echoes = [
            _text(prompt, tokenizer) if request.echo else ""
            for prompt in request.prompts
            for _ in range(request.n or 1)
        ]
        sampling = sampling_params(request, card, request.logprobs)
        planned = plan(request, card, tokenizer, response_id, sampling, "prompt")
        return planned.generations([_ids(prompt, card, tokenizer) for prompt in request.prompts])

    def format_stream_start(self) -> bytes:
        return b"".join(
            self._frames.chunk(_choice(choice, encode_text(echo), NULL, NULL))
            for choice, echo in enumerate(self._echoes)
            if echo
        )

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        frames = b""
        if delta.text or delta.logprobs:
            logprobs = encode(self._entries(choice, delta)) if self._logprobs else NULL
            text = _choice(choice, encode_text(delta.text), logprobs, NULL)
            frames = self._frames.chunk(text, usage)
        if delta.finish_reason is not None:
            end = _choice(choice, b'""', NULL, encode_text(delta.finish_reason))
            frames += self._frames.chunk(end, usage)
        return frames

    def format_stream_end(self, usage: Usage) -> bytes:
        return self._frames.end(usage)

    def format_stream_error(self, error: RequestError) -> bytes:
        return self._frames.error(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        formatted: list[object] = [
            {
                "index": index,
                "text": self._echoes[index] + choice.text,
                "logprobs": self._entries(index, choice) if self._logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(choices)
        ]
        return self._frames.body(formatted, usage)

    def _entries(self, choice: int, delta: TextDelta) -> object:
        tokens = [entry.token for entry in delta.logprobs]
        return {
            "tokens": [self._token(token.token_id) for token in tokens],
            "token_logprobs": [finite(token.logprob) for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": [entry.offset + len(self._echoes[choice]) for entry in delta.logprobs],
        }

    def _top(self, token: TokenLogprob) -> dict[str, float]:
        """By text, the drawn token among them; of tokens that read the same, the likeliest."""
        named: dict[str, float] = {}
        for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
            named.setdefault(self._token(token_id), finite(logprob))
        return named

    def _token(self, token_id: int) -> str:
        return self._tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def _choice(index: int, text: bytes, logprobs: bytes, finish_reason: bytes) -> bytes:
    parts = (index, text, logprobs, finish_reason)
    return b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}' % parts


def _ids(prompt: str | list[int], card: ModelCard, tokenizer: TextTokenizer) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, add_special_tokens=True)
    check_ids(prompt, card, "prompt")
    return prompt


def _text(prompt: str | list[int], tokenizer: TextTokenizer) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
