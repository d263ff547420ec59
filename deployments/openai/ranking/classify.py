"""Classification: the probabilities of a classifier's labels, in vLLM's form."""

import time
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import PoolParams, Vectors
from deployments.ingress.generation.abilities import check_classifies
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.generation.response_builder import Usage
from deployments.ingress.http.schema import Items, Switch, TokenIds
from deployments.ingress.http.sse import encode
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.ingress.pooling.builder import PooledBuilder
from deployments.ingress.pooling.schema import NEUTRAL, PooledFields, check_count
from deployments.ingress.pooling.texts import PooledText, Text, TextEncoder
from deployments.openai.ranking.activations import probabilities
from deployments.openai.request_headers import read_headers
from deployments.text.tokens.tokenizer import TextTokenizer

Texts = Annotated[Items[str], Field(min_length=1)]


class ClassifyRequest(PooledFields):
    """`use_activation`: probabilities or logits; without it as the model's files say."""

    input: str | Texts | TokenIds | Annotated[Items[TokenIds], Field(min_length=1)]
    add_special_tokens: Switch = None
    use_activation: Switch = None

    @property
    def texts(self) -> list[Text]:
        if isinstance(self.input, str):
            return [self.input]
        ids = [token_id for token_id in self.input if isinstance(token_id, int)]
        return [ids] if ids else [text for text in self.input if not isinstance(text, int)]

    @property
    def n_texts(self) -> int:
        return len(self.texts)

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        check_count(self.n_texts, "input")
        return self


class ClassifyBuilder(PooledBuilder[ClassifyRequest]):
    prefix = "classify"

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context, read_headers(context.headers).tenant)

    def check_model(self, request: ClassifyRequest, card: ModelCard) -> None:
        check_classifies(card)

    def texts(
        self, request: ClassifyRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[PooledText]:
        frames = request.add_special_tokens is not False
        encoder = TextEncoder(card, tokenizer, request.truncation, special_tokens=frames)
        output = PoolParams(use_head=True)
        if len(request.texts) == 1:
            return [encoder.one(request.texts[0], output, "input")]
        return [
            encoder.one(text, output, f"input[{index}]") for index, text in enumerate(request.texts)
        ]

    def format_body(self, vectors: Sequence[Vectors], usage: Usage) -> bytes:
        data = [self._classified(index, output) for index, output in enumerate(vectors)]
        tokens = {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}
        return encode(
            {
                "id": self._id,
                "object": "list",
                "created": int(time.time()),
                "model": self._card.answers_as,
                "data": data,
                "usage": tokens,
            }
        )

    def _classified(self, index: int, vectors: Vectors) -> object:
        probs = probabilities(vectors.data, self._card, self._request.use_activation)
        labels, best = self._card.answers.labels, max(range(len(probs)), key=probs.__getitem__)
        return {
            "index": index,
            "label": labels[best] if best < len(labels) else None,
            "probs": probs,
            "num_classes": len(probs),
        }


def parse_classify(body: object) -> ClassifyRequest:
    return parse(ClassifyRequest, refuse_unsupported(body, NEUTRAL))
