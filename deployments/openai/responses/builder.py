"""Responses: makes a prompt of items, and output items and events of the reply, and stores them."""

import logging
from collections.abc import Sequence

from deployments.contract.errors import Refused, RequestError
from deployments.contract.events import FinishReason
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import Plan
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.http.sse import encode
from deployments.media.prompt_media import NO_MEDIA
from deployments.openai.choices.logprobs import finite
from deployments.openai.fields.sampling import common_sampling
from deployments.openai.request_headers import read_headers
from deployments.openai.responses.encryption import ThoughtCipher
from deployments.openai.responses.events import Events, error_event
from deployments.openai.responses.input import (
    decrypted,
    given_items,
    offered_tools,
    prompt_of,
    read_items,
    referred_ids,
    sources_of,
    stored_item,
)
from deployments.openai.responses.items import Json, new_id
from deployments.openai.responses.object import ResponseObject
from deployments.openai.responses.output import Output, ReasoningForm
from deployments.openai.responses.schema import ResponsesRequest
from deployments.openai.responses.store import ResponseStore
from deployments.store.items import NewResponse, Recalled, StoredItem, Wanted
from deployments.text.stream import LogprobAtOffset, TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer

logger = logging.getLogger(__name__)


class ResponsesBuilder(ResponseBuilder[ResponsesRequest]):
    _tokenizer: TextTokenizer
    _object: ResponseObject
    _events: Events
    _output: Output
    _stored: bool
    _is_kept: bool  # the response, or its items in its conversation
    _given: tuple[StoredItem, ...]
    _end: bytes  # the finished response

    def __init__(
        self, store: ResponseStore, cipher: ThoughtCipher, context: RequestContext
    ) -> None:
        self._store = store.for_owner(context.owner, context.client)
        self._cipher = cipher.for_owner(context.owner)
        self._reserve = context.reserve
        self._read_media = context.read_media
        self._media = NO_MEDIA
        self._headers = read_headers(context.headers)
        self._is_cut = False  # by a limit of tokens
        self._recalled = Recalled()
        self._n_reserved = 0

    async def recall(self, request: ResponsesRequest, card: ModelCard) -> None:
        await self._recall(request)
        sources = sources_of(request.items, self._recalled)
        self._media = await self._read_media(sources, card)

    async def _recall(self, request: ResponsesRequest) -> None:
        self._stored = request.store is not False
        self._is_kept = self._stored or request.conversation_id is not None
        wanted = Wanted(
            previous=request.previous_response_id,
            conversation=request.conversation_id,
            ids=referred_ids(request.items),
        )
        if wanted == Wanted():
            return
        n_bytes = 0

        def reserve(n_more: int) -> None:
            nonlocal n_bytes
            n_bytes += n_more
            if n_bytes > self._n_reserved:  # what was recalled before was forgotten
                self._reserve(n_bytes - self._n_reserved)
                self._n_reserved = n_bytes

        self._recalled = await self._store.recall(wanted, reserve)

    def prepare(
        self, request: ResponsesRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        logprobs = (request.top_logprobs or 0) if request.wants_logprobs else None
        sampling = common_sampling(request, card, logprobs)
        self._tokenizer = tokenizer
        self._events = Events(muted=not request.stream)
        encrypt = self._cipher.encrypt if request.wants_encrypted_thoughts else None
        given = given_items(request.items, self._recalled)
        self._given = ()
        if self._is_kept:
            self._given = tuple(stored_item(item, self._recalled) for _, item in given)
        items = decrypted([*read_items(self._recalled), *given], self._cipher)
        self._recalled = self._recalled.without_items()  # nobody needs them while it generates
        offered = offered_tools(request, items)
        reasoning = ReasoningForm(request.wants_summary, encrypt)
        self._output = Output(self._events, reasoning, offered.by_shown())
        self._object = ResponseObject(new_id("resp"), card.answers_as, request, offered, sampling)
        prompt = prompt_of(request, items, offered, card, tokenizer, self._media)
        planned = Plan(
            card=card,
            tokenizer=tokenizer,
            response_id=self._object.id,
            prompts=[prompt],
            sampling=sampling,
            prompt_param="input",
            options=self._headers.salted(request.plan_options),
        )
        return planned.generations()

    def format_stream_start(self) -> bytes:
        begun = encode(self._object.begun())
        created = self._events.response("response.created", begun)
        return created + self._events.response("response.in_progress", begun)

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        events = self._output.add(delta.pieces, [self._entry(entry) for entry in delta.logprobs])
        if delta.finish_reason is None:
            return events
        self._is_cut = delta.finish_reason is FinishReason.LENGTH
        return events + self._output.end("incomplete" if self._is_cut else "completed")

    def format_stream_end(self, usage: Usage) -> bytes:
        kind = "response.incomplete" if self._is_cut else "response.completed"
        return self._events.response(kind, self._end)

    def format_stream_error(self, error: RequestError) -> bytes:
        self._output.fail()
        failed = self._object.failed(self._output.values(), error)
        return self._events.response("response.failed", encode(failed))

    def format_refusal(self, error: RequestError) -> bytes:
        """Before a stream begins there is no response object that could fail."""
        return error_event(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        return self._end

    async def finish(self, choices: Sequence[TextDelta], usage: Usage) -> None:
        """A response that can't be stored says so. Without its conversation it fails."""
        for answer in choices:
            self.format_chunk(0, answer, usage)
        self._end = self._ended(usage, is_stored=self._stored)
        if self._is_kept and not await self._keep() and self._stored:
            self._end = self._ended(usage, is_stored=False)

    async def _keep(self) -> bool:
        items = (StoredItem(str(item["id"]), encode(item)) for item in self._output.values())
        new = NewResponse(
            id=self._object.id,
            body=self._end if self._stored else None,
            recalled=self._recalled,
            given=self._given,
            output=tuple(items),
        )
        try:
            is_stored = await self._store.put(new)
        except Refused as refusal:
            if self._recalled.conversation is not None:
                raise
            logger.warning("%s was not stored: %s", new.id, refusal)
            return False
        if self._stored and not is_stored:
            why = "it is too large, or what it continues is gone"
            logger.warning("%s was not stored: %s", new.id, why)
        return is_stored

    def _ended(self, usage: Usage, *, is_stored: bool) -> bytes:
        output = self._output.values()
        ended = self._object.ended(output, usage, is_cut=self._is_cut, is_stored=is_stored)
        return encode(ended)

    def _entry(self, entry: LogprobAtOffset) -> Json:
        token = entry.token
        top = [self._token(token_id, logprob) for token_id, logprob in token.top]
        return {**self._token(token.token_id, token.logprob), "top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> Json:
        raw = self._tokenizer.token_bytes(token_id)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": finite(logprob), "bytes": list(raw)}
