"""Chat completions: a conversation to one prompt, and its choices to OpenAI's chunks and body."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.http.errors import NO_HEADERS
from deployments.ingress.http.sse import DONE, encode, encode_text
from deployments.ingress.llamacpp.timings import Stopwatch, progress, timings
from deployments.openai.chat.deltas import (
    ROLE,
    delta_of,
    finish_reason,
    message_of,
)
from deployments.openai.chat.prompt import chat_prompt
from deployments.openai.chat.schema import ChatRequest
from deployments.openai.choices.chunk_frames import Frames, error_frames, more
from deployments.openai.choices.logprobs import Logprobs
from deployments.openai.choices.nvext_annotations import Disclosure
from deployments.openai.choices.vllm_choice_fields import ChoiceFields
from deployments.openai.fields.sampling import plan
from deployments.openai.request_headers import origin_of
from deployments.text.chat.prompt import Prompt
from deployments.text.dialects.parsing.pieces import Content, Piece
from deployments.text.reply import Calling
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import ModelCard, RequestError

KIND, CHUNK_KIND = "chat.completion", "chat.completion.chunk"
NULL = b"null"
SILENCE = b"{}"


class OpenAIResponseBuilder(ResponseBuilder[ChatRequest]):
    _request: ChatRequest
    _prompt: Prompt
    _frames: Frames
    _logprobs: Logprobs
    _fields: ChoiceFields
    _disclosure: Disclosure
    _calling: list[Calling]  # one a choice
    _watches: list[Stopwatch]

    def __init__(self, headers: Mapping[str, str] = NO_HEADERS) -> None:
        self._origin = origin_of(headers)

    def keep_alive_s(self, request: ChatRequest, default: float) -> float | None:
        return request.ping_interval_s(default)

    def prepare(
        self, request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        self._request = request
        self._prompt = chat_prompt(request, card, tokenizer)
        response_id = f"chatcmpl-{uuid.uuid4().hex}"
        self._format_as(response_id, card, tokenizer)
        alternatives = (request.top_logprobs or 0) if request.logprobs else None
        planned = replace(
            plan(request, [self._prompt], card, tokenizer, response_id, alternatives, "messages"),
            prompt_logprobs=request.prompt_logprobs,
            tells_progress=bool(request.return_progress and request.stream),
        )
        return self._origin.salted(planned).generations()

    def _format_as(self, response_id: str, card: ModelCard, tokenizer: TextTokenizer) -> None:
        request, choices = self._request, self._request.n or 1
        self._frames = Frames(request, card.name, response_id, kind=KIND, chunk_kind=CHUNK_KIND)
        as_ids = bool(request.return_tokens_as_token_ids)
        self._logprobs = Logprobs(tokenizer, as_ids=as_ids)
        self._fields = ChoiceFields(request, card)
        self._calling = [Calling() for _ in range(choices)]
        self._watches = [Stopwatch() for _ in range(choices)]
        prompts = [(self._prompt.text, self._prompt.ids)]
        silence = partial(self._frames.chunk, _choice(0, SILENCE, NULL, NULL))
        self._disclosure = Disclosure(request.nvext, prompts, choices, self._origin, silence)

    def format_stream_start(self) -> bytes:
        opening = [_choice(choice, ROLE, NULL, NULL) for choice in range(len(self._calling))]
        first = self._frames.chunk(opening[0], beside=more(self._prompt_fields()))
        return b"".join((self._disclosure.begin(), first, *map(self._frames.chunk, opening[1:])))

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        self._disclosure.add_streamed(delta)
        self._watches[choice].see(delta)
        pieces, beside = self._pieces(delta), more(self._timings(choice, delta))
        self._calling[choice].add(pieces)
        logprobs, fields = self._scores(delta), more(self._fields.produced(delta))
        bodies = [delta_of(piece) for piece in pieces]
        if not bodies and (delta.logprobs or (fields and delta.token_ids)):
            bodies = [SILENCE]  # their text is held back, and no later delta has them
        told = delta.prompt_tokens
        frames = [] if told is None else [self._progress(choice, delta, told)]
        for body in bodies:
            chunk = _choice(choice, body, logprobs, NULL, fields)
            frames.append(self._frames.chunk(chunk, usage, beside))
            logprobs, fields = NULL, b""
        if delta.finish_reason is not None:
            frames.append(self._last_chunk(choice, delta, usage))
        return b"".join(frames)

    def _last_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        assert delta.finish_reason is not None
        reason = encode_text(finish_reason(delta.finish_reason, self._calling[choice]))
        end = _choice(choice, SILENCE, NULL, reason, more(self._fields.ended(delta)))
        beside = self._timings(choice, delta) | self._disclosure.answer(usage)
        return self._frames.chunk(end, usage, more(beside))

    def _progress(self, choice: int, delta: TextDelta, processed: int) -> bytes:
        told = progress(self._watches[choice], delta, processed, len(self._prompt.ids))
        beside = {"prompt_progress": told, **self._timings(choice, delta)}
        return self._frames.chunk(_choice(choice, SILENCE, NULL, NULL), beside=more(beside))

    def _timings(self, choice: int, delta: TextDelta) -> dict[str, object]:
        if not self._request.timings_per_token:
            return {}
        return {"timings": timings(self._watches[choice], delta, len(self._prompt.ids))}

    def format_stream_end(self, usage: Usage) -> bytes:
        return self._frames.end(usage) + self._disclosure.end(usage) + DONE

    def format_stream_error(self, error: RequestError) -> bytes:
        return error_frames(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        formatted = [self._whole(index, choice) for index, choice in enumerate(choices)]
        fields = self._prompt_fields()
        if self._request.prompt_logprobs is not None:
            scores = choices[0].prompt_logprobs or ()
            fields["prompt_logprobs"] = self._logprobs.prompt(scores, self._request.prompt_logprobs)
        return self._frames.body(formatted, usage, fields | self._disclosure.answer(usage))

    def _whole(self, index: int, choice: TextDelta) -> object:
        assert choice.finish_reason is not None
        self._disclosure.add(choice)
        pieces = self._pieces(choice)
        return {
            "index": index,
            "message": message_of(pieces),
            "logprobs": self._logprobs.chat(choice.logprobs) if self._request.logprobs else None,
            "finish_reason": finish_reason(choice.finish_reason, Calling(pieces)),
            **self._fields.produced(choice),
            **self._fields.ended(choice),
        }

    def _pieces(self, delta: TextDelta) -> Sequence[Piece]:
        if self._request.raw:
            return [Content(delta.text)] if delta.text else []
        return delta.pieces

    def _scores(self, delta: TextDelta) -> bytes:
        return encode(self._logprobs.chat(delta.logprobs)) if self._request.logprobs else NULL

    def _prompt_fields(self) -> dict[str, object]:
        if not self._request.return_token_ids:
            return {}
        return {"prompt_token_ids": list(self._prompt.ids)}


def _choice(
    index: int, delta: bytes, logprobs: bytes, finish_reason: bytes, fields: bytes = b""
) -> bytes:
    parts = (index, delta, logprobs, finish_reason, fields)
    return b'{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b%b}' % parts
