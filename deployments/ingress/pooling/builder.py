"""Answers with one body, made of the vectors of many texts. Each text is a request of its own."""

import asyncio
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeVar

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import VECTOR_ITEM_BYTES, Vectors
from deployments.contract.requests import GenerationRequest
from deployments.contract.served_adapters import contents
from deployments.ingress.generation.chosen_adapters import LoraScales, chosen_adapters
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.generation.response_builder import (
    ApiRequest,
    Generation,
    UnaryBuilder,
    Usage,
)
from deployments.ingress.off_loop import OFF_LOOP_BYTES
from deployments.ingress.pooling.texts import PooledText
from deployments.ingress.pooling.vectors import VectorStream
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer
from kv.content import Content


class PooledRequest(ApiRequest, Protocol):
    @property
    def cache_salt(self) -> str | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def lora_scales(self) -> LoraScales | None: ...
    @property
    def request_id(self) -> str | None:
        """How the client knows the answer, behind the prefix of its id."""


RequestT = TypeVar("RequestT", bound=PooledRequest, contravariant=True)


class PooledBuilder(UnaryBuilder[RequestT]):
    """`texts` and `format_body` are a protocol's own; these may use `_request` and `_card`."""

    prefix = "pool"  # of the ids of its answers
    _request: RequestT
    _card: ModelCard
    _body: bytes

    def __init__(self, context: RequestContext, tenant: str = "") -> None:
        self._reserve = context.reserve
        self._tenant = tenant
        self._n_reserved = 0
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"

    @abstractmethod
    def texts(
        self, request: RequestT, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[PooledText]:
        """Raises Refused."""

    @abstractmethod
    def format_body(self, vectors: Sequence[Vectors], usage: Usage) -> bytes:
        """`vectors` are in the order of the texts. It may take long."""

    def reserve(self, n_numbers: int, bytes_per_number: int) -> None:
        """Counts an answer of so many numbers for the budget of its client. Raises Refused."""
        n_bytes = n_numbers * (VECTOR_ITEM_BYTES + bytes_per_number)
        if n_bytes > self._n_reserved:
            self._reserve(n_bytes - self._n_reserved)
            self._n_reserved = n_bytes

    def prepare(
        self, request: RequestT, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        self._request, self._card, unique = request, card, self._id
        if request.request_id:
            self._id = f"{self.prefix}-{request.request_id}"
        adapters = contents(chosen_adapters(card, request.lora_scales))
        content = Content(self._tenant or request.cache_salt or "", adapters)
        return [
            Generation(
                request=GenerationRequest(
                    request_id=f"{unique}-{index}",
                    response_id=unique,
                    prompt_ids=text.ids,
                    max_tokens=0,
                    content=content,
                    priority=request.priority or 0,
                    output=text.output,
                    second_at=text.second_at,
                ),
                text=VectorStream(),
            )
            for index, text in enumerate(self.texts(request, card, tokenizer))
        ]

    async def finish(self, choices: Sequence[TextDelta], usage: Usage) -> None:
        """Formats here, off the loop where it takes long: `format_response` is on it."""
        vectors = [choice.vectors for choice in choices if choice.vectors is not None]
        if len(vectors) < len(choices):
            raise RuntimeError("the engine gave a text no vectors")
        work = partial(self.format_body, vectors, usage)
        if sum(len(vector.data) for vector in vectors) > OFF_LOOP_BYTES:
            self._body = await asyncio.to_thread(work)
        else:
            self._body = work()

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        return self._body
