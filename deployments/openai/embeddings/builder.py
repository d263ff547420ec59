"""Embeddings of texts as requests to the engine, for all forms of `schema`."""

from collections.abc import Sequence

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Pooling, PoolParams, Vectors
from deployments.ingress.generation.abilities import check_classifies, check_embeds
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.generation.response_builder import Generation, Usage
from deployments.ingress.pooling.builder import PooledBuilder
from deployments.ingress.pooling.texts import PooledText, TextEncoder
from deployments.ingress.pooling.vectors import BASE64_BYTES_PER_NUMBER, JSON_BYTES_PER_NUMBER
from deployments.openai.embeddings.bodies import Answered, format_embeddings
from deployments.openai.embeddings.schema import EmbeddingFields, PoolingRequest
from deployments.openai.request_headers import read_headers
from deployments.text.tokens.tokenizer import TextTokenizer


class EmbeddingBuilder(PooledBuilder[EmbeddingFields]):
    prefix = "embd"

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context, read_headers(context.headers).tenant)

    def check_model(self, request: EmbeddingFields, card: ModelCard) -> None:
        if asks_for_logits(request):
            check_classifies(card)
            return
        check_embeds(card, request.named_pooling)
        pooling = request.named_pooling or card.answers.pooling
        if pooling is Pooling.TOKEN and not request.may_be_of_tokens:
            message = (
                f"`model`: {card.name!r} makes a vector for each token, which POST /embedding and "
                "POST /pooling answer with"
            )
            raise refused(message, "model")
        size = card.answers.embedding_size
        if request.size is not None and request.size > size:
            name = request.size_param
            message = (
                f"`{name}` must be at most {size} for the model {card.name!r}, got {request.size}"
            )
            raise refused(message, name)

    def check_size(self, generations: Sequence[Generation]) -> None:
        """Counts the vectors and their text for the client's share of bytes. Raises Refused."""
        request, kinds = self._request, self._card.answers
        if asks_for_logits(request):
            return
        n_vectors = len(generations)
        if (request.named_pooling or kinds.pooling) is Pooling.TOKEN:
            n_vectors = sum(len(generation.request.prompt_ids) for generation in generations)
        form = BASE64_BYTES_PER_NUMBER if request.as_base64 else JSON_BYTES_PER_NUMBER
        self.reserve(n_vectors * (request.size or kinds.embedding_size), form)

    def texts(
        self, request: EmbeddingFields, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[PooledText]:
        encoder = TextEncoder(card, tokenizer, request.truncation, special_tokens=request.frames)
        output, prompt = _output(request, card), request.prompt(card)
        texts, param = request.texts, request.param
        if len(texts) == 1:
            return [encoder.one(texts[0], output, param, prompt)]
        return [
            encoder.one(text, output, f"{param}[{index}]", prompt)
            for index, text in enumerate(texts)
        ]

    def format_body(self, vectors: Sequence[Vectors], usage: Usage) -> bytes:
        answered = Answered(self._id, self._card, vectors, usage.prompt_tokens)
        return format_embeddings(self._request, answered)


def asks_for_logits(request: EmbeddingFields) -> bool:
    return isinstance(request, PoolingRequest) and request.task == "classify"


def _output(request: EmbeddingFields, card: ModelCard) -> PoolParams:
    if asks_for_logits(request):
        return PoolParams(use_head=True)
    return PoolParams(
        pooling=request.named_pooling,
        dimensions=request.size,
        normalize=request.norm(card.answers),
    )
