"""Responses: makes a prompt of items, and output items and events of the reply, and stores them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deployments.ingress.generation.plan import Plan
from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.http.errors import NO_HEADERS
from deployments.ingress.http.sse import encode
from deployments.openai.choices.logprobs import finite
from deployments.openai.fields.sampling import common_sampling
from deployments.openai.request_headers import read_headers
from deployments.openai.responses.encryption import OwnedCipher
from deployments.openai.responses.events import Events, error_event
from deployments.openai.responses.input import (
    decrypted,
    earlier_items,
    functions_of,
    given_items,
    prompt_of,
    read_items,
)
from deployments.openai.responses.items import Item, Json, new_id
from deployments.openai.responses.object import ResponseObject
from deployments.openai.responses.output import Output, ReasoningForm
from deployments.openai.responses.schema import ResponsesRequest
from deployments.openai.responses.store import OwnedResponses, StoredItem, StoredResponse
from deployments.text.chat.prompt import Prompt
from deployments.text.stream import LogprobAtOffset, TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import FinishReason, ModelCard, RequestError, SamplingParams


class ResponsesBuilder(ResponseBuilder[ResponsesRequest]):
    _tokenizer: TextTokenizer
    _object: ResponseObject
    _events: Events
    _output: Output
    _stored: bool
    _earlier: tuple[StoredItem, ...]
    _given: tuple[StoredItem, ...]

    def __init__(
        self,
        store: OwnedResponses,
        cipher: OwnedCipher,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._headers = read_headers(headers)
        self._is_cut = False  # by a limit of tokens

    def prepare(
        self, request: ResponsesRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        logprobs = (request.top_logprobs or 0) if request.wants_logprobs else None
        sampling = common_sampling(request, card, logprobs)
        self._tokenizer = tokenizer
        self._events = Events(muted=not request.stream)
        encrypt = self._cipher.encrypt if request.wants_encrypted_thoughts else None
        self._output = Output(self._events, ReasoningForm(request.wants_summary, encrypt))
        given = given_items(request, self._store)
        self._stored = request.store is not False
        self._earlier = earlier_items(request, self._store)
        self._given = tuple(self._stored_item(item) for _, item in given) if self._stored else ()
        items = decrypted([*read_items(self._earlier), *given], self._cipher)
        functions = functions_of(request, items)
        self._object = ResponseObject(new_id("resp"), card.name, request, functions, sampling)
        prompt = prompt_of(request, items, functions, card, tokenizer)
        planned = self._plan(request, card, sampling, prompt)
        return self._headers.salted(planned).generations()

    def _plan(
        self, request: ResponsesRequest, card: ModelCard, sampling: SamplingParams, prompt: Prompt
    ) -> Plan:
        return Plan(
            card=card,
            tokenizer=self._tokenizer,
            response_id=self._object.id,
            prompts=[prompt],
            sampling=sampling,
            prompt_param="input",
            max_tokens=request.max_output_tokens,
            stops=request.stops,
            ignore_eos=bool(request.ignore_eos),
            cache_salt=request.cache_salt or "",
            priority=request.priority or 0,
        )

    def format_stream_start(self) -> bytes:
        begun = encode(self._object.begun())
        created = self._events.response("response.created", begun)
        return created + self._events.response("response.in_progress", begun)

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        events = self._output.add(delta.pieces, [self._entry(one) for one in delta.logprobs])
        if delta.finish_reason is None:
            return events
        self._is_cut = delta.finish_reason is FinishReason.LENGTH
        return events + self._output.end("incomplete" if self._is_cut else "completed")

    def format_stream_end(self, usage: Usage) -> bytes:
        kind = "response.incomplete" if self._is_cut else "response.completed"
        return self._events.response(kind, self._ended(usage))

    def format_stream_error(self, error: RequestError) -> bytes:
        self._output.fail()
        failed = self._object.failed(self._output.values(), error)
        return self._events.response("response.failed", encode(failed))

    def format_refusal(self, error: RequestError) -> bytes:
        """Before a stream begins there is no response object that could fail."""
        return error_event(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        [answer] = choices
        self.format_chunk(0, answer, usage)
        return self._ended(usage)

    def _ended(self, usage: Usage) -> bytes:
        """The finished response, which is stored from now on."""
        output = self._output.values()
        body = encode(self._object.ended(output, usage, is_cut=self._is_cut))
        if self._stored:
            stored = StoredResponse(
                id=self._object.id,
                body=body,
                earlier=self._earlier,
                given=self._given,
                output=tuple(StoredItem(str(item["id"]), encode(item)) for item in output),
            )
            self._store.put(stored)
        return body

    def _stored_item(self, item: Item) -> StoredItem:
        listed = item.listed()
        stored = StoredItem(str(listed["id"]), encode(listed))
        known = self._store.item(stored.id)
        is_ours = not item.id or (known is not None and known.body == stored.body)
        return replace(stored, is_referable=is_ours)

    def _entry(self, entry: LogprobAtOffset) -> Json:
        token = entry.token
        top = [self._token(token_id, logprob) for token_id, logprob in token.top]
        return {**self._token(token.token_id, token.logprob), "top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> Json:
        raw = self._tokenizer.token_bytes(token_id)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": finite(logprob), "bytes": list(raw)}
