"""Chat completions: makes a prompt of a conversation, and OpenAI's chunks or body of choices."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from deployments.contract.errors import RequestError
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import Plan
from deployments.ingress.generation.request_context import ReadMedia, reads_none
from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.http.errors import NO_HEADERS
from deployments.ingress.http.sse import DONE, encode, encode_text
from deployments.ingress.llamacpp.timings import TimedText, progress, timings
from deployments.media.prompt_media import NO_MEDIA
from deployments.openai.chat.deltas import (
    ROLE,
    ChatDeltas,
    finish_reason,
    message_of,
)
from deployments.openai.chat.prompt import chat_prompt
from deployments.openai.chat.schema import ChatRequest
from deployments.openai.choices.chunk_encoder import ChunkEncoder, error_events, trailing_fields
from deployments.openai.choices.logprobs import Logprobs
from deployments.openai.choices.nvext_annotations import NvextOutput
from deployments.openai.choices.prompt_scores import PromptScores, reserve_nothing
from deployments.openai.choices.vllm_choice_fields import VllmChoiceFields
from deployments.openai.fields.sampling import sampling_params
from deployments.openai.request_headers import read_headers
from deployments.text.chat.prompt import Prompt
from deployments.text.dialects.parsing.pieces import ContentPiece, Piece
from deployments.text.reply import CallTracker
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer

KIND, CHUNK_KIND = "chat.completion", "chat.completion.chunk"
NULL = b"null"
EMPTY_DELTA = b"{}"


class OpenAIResponseBuilder(ResponseBuilder[ChatRequest]):
    _request: ChatRequest
    _prompt: Prompt
    _encoder: ChunkEncoder
    _logprobs: Logprobs
    _fields: VllmChoiceFields
    _nvext: NvextOutput
    _call_trackers: list[CallTracker]  # one a choice
    _deltas: list[ChatDeltas]
    _texts: list[TimedText]
    _final_timings: dict[str, object]  # of the first choice
    # Whether logprobs have ids and every answer has its timings, as llama-server's chats.
    like_llama_server: ClassVar[bool] = False

    def __init__(
        self,
        headers: Mapping[str, str] = NO_HEADERS,
        read_media: ReadMedia = reads_none,
        reserve: Callable[[int], None] = reserve_nothing,
    ) -> None:
        self._headers = read_headers(headers)
        self._scores = PromptScores(reserve)
        self._read_media = read_media
        self._media = NO_MEDIA

    def keep_alive_s(self, request: ChatRequest, default: float) -> float | None:
        return request.ping_interval_s(default)

    async def recall(self, request: ChatRequest, card: ModelCard) -> None:
        self._media = await self._read_media(request.sources, card)

    def prepare(
        self, request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        self._request = request
        self._prompt = chat_prompt(request, card, tokenizer, self._media)
        response_id = f"chatcmpl-{uuid.uuid4().hex}"
        self._format_as(response_id, card, tokenizer)
        alternatives = (request.top_logprobs or 0) if request.logprobs else None
        planned = Plan(
            card=card,
            tokenizer=tokenizer,
            response_id=response_id,
            prompts=[self._prompt],
            sampling=sampling_params(request, card, tokenizer, alternatives),
            prompt_param="messages",
            options=self._headers.salted(request.plan_options),
        )
        generations = planned.generations()
        self._texts = [TimedText(generation.text) for generation in generations]
        self._final_timings = {}
        return [
            replace(generation, text=text)
            for generation, text in zip(generations, self._texts, strict=True)
        ]

    def check_size(self, generations: Sequence[Generation]) -> None:
        self._scores.reserve(generations)

    def _format_as(self, response_id: str, card: ModelCard, tokenizer: TextTokenizer) -> None:
        request, choices = self._request, self._request.n or 1
        self._encoder = ChunkEncoder(
            request, card.answers_as, response_id, kind=KIND, chunk_kind=CHUNK_KIND
        )
        as_ids = bool(request.return_tokens_as_token_ids)
        self._logprobs = Logprobs(tokenizer, as_ids=as_ids, with_ids=self.like_llama_server)
        self._fields = VllmChoiceFields(request, card)
        self._call_trackers = [CallTracker() for _ in range(choices)]
        self._deltas = [ChatDeltas(request.custom_names) for _ in range(choices)]
        prompts = [(self._prompt.text, self._prompt.ids)]
        empty_chunk = partial(self._encoder.chunk, _choice(0, EMPTY_DELTA, NULL, NULL))
        self._nvext = NvextOutput(request.nvext, prompts, choices, self._headers, empty_chunk)

    def format_stream_start(self) -> bytes:
        opening = [_choice(choice, ROLE, NULL, NULL) for choice in range(len(self._call_trackers))]
        first = self._encoder.chunk(opening[0], trailing=trailing_fields(self._prompt_fields()))
        return b"".join((self._nvext.begin(), first, *map(self._encoder.chunk, opening[1:])))

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        self._nvext.add_streamed(delta)
        pieces, trailing = self._pieces(delta), trailing_fields(self._timings(choice, delta))
        self._call_trackers[choice].add(pieces)
        logprobs, fields = self._chat_logprobs(delta), trailing_fields(self._fields.produced(delta))
        bodies = [*filter(None, map(self._deltas[choice].format, pieces))]
        if delta.finish_reason is not None:
            bodies += self._deltas[choice].end()
        if not bodies and (delta.logprobs or (fields and delta.token_ids)):
            bodies = [EMPTY_DELTA]  # their text is held back, and no later delta carries them
        processed = delta.prompt_tokens
        chunks = [] if processed is None else [self._progress(choice, delta, processed)]
        for body in bodies:
            chunk = _choice(choice, body, logprobs, NULL, fields)
            chunks.append(self._encoder.chunk(chunk, usage, trailing))
            logprobs, fields = NULL, b""
        if delta.finish_reason is not None:
            chunks.append(self._last_chunk(choice, delta, usage))
        return b"".join(chunks)

    def _last_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        assert delta.finish_reason is not None
        reason = encode_text(finish_reason(delta.finish_reason, self._call_trackers[choice]))
        end = _choice(choice, EMPTY_DELTA, NULL, reason, trailing_fields(self._fields.ended(delta)))
        told = self._timings(choice, delta, ended=True)
        if choice == 0:
            self._final_timings = told
        trailing = told | self._nvext.answer(usage)
        return self._encoder.chunk(end, usage, trailing_fields(trailing))

    def _progress(self, choice: int, delta: TextDelta, processed: int) -> bytes:
        current = progress(self._texts[choice], delta, processed, len(self._prompt.ids))
        trailing = {"prompt_progress": current, **self._timings(choice, delta)}
        return self._encoder.chunk(
            _choice(choice, EMPTY_DELTA, NULL, NULL), trailing=trailing_fields(trailing)
        )

    def _timings(self, choice: int, delta: TextDelta, *, ended: bool = False) -> dict[str, object]:
        if not (self._request.timings_per_token or (ended and self.like_llama_server)):
            return {}
        return {"timings": timings(self._texts[choice], delta, len(self._prompt.ids))}

    def format_stream_end(self, usage: Usage) -> bytes:
        end = self._encoder.end(usage, trailing_fields(self._final_timings))
        return end + self._nvext.end(usage) + DONE

    def format_stream_error(self, error: RequestError) -> bytes:
        return error_events(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        formatted = [self._whole(index, choice) for index, choice in enumerate(choices)]
        fields = self._prompt_fields()
        if self._request.prompt_logprobs is not None:
            logprobs = choices[0].prompt_logprobs or ()
            fields["prompt_logprobs"] = self._logprobs.prompt(
                logprobs, self._request.prompt_logprobs
            )
        if self.like_llama_server:
            fields |= self._timings(0, choices[0], ended=True)
        return self._encoder.body(formatted, usage, fields | self._nvext.answer(usage))

    def _whole(self, index: int, choice: TextDelta) -> object:
        assert choice.finish_reason is not None
        self._nvext.add(choice)
        pieces = self._pieces(choice)
        return {
            "index": index,
            "message": message_of(pieces, self._request.custom_names),
            "logprobs": self._logprobs.chat(choice.logprobs) if self._request.logprobs else None,
            "finish_reason": finish_reason(choice.finish_reason, CallTracker(pieces)),
            **self._fields.produced(choice),
            **self._fields.ended(choice),
        }

    def _pieces(self, delta: TextDelta) -> Sequence[Piece]:
        if self._request.raw:
            return [ContentPiece(delta.text)] if delta.text else []
        return delta.pieces

    def _chat_logprobs(self, delta: TextDelta) -> bytes:
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
