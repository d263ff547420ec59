"""Ranks and scores of pairs, and the bodies that carry them."""

import time
from collections.abc import Sequence

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Pooling, Vectors
from deployments.ingress.generation.abilities import check_ranks, scores_pairs
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.generation.response_builder import Generation, Usage
from deployments.ingress.http.sse import encode
from deployments.ingress.pooling.builder import PooledBuilder
from deployments.ingress.pooling.texts import PooledText
from deployments.openai.ranking.schema import (
    AnyRanking,
    RerankRequest,
    ScoreRequest,
    TextsRerankRequest,
)
from deployments.openai.ranking.scorer import Scorer, scorer_of
from deployments.openai.request_headers import read_headers
from deployments.text.tokens.tokenizer import TextTokenizer

FLOAT64_BYTES = 8
NO_TEXT: dict[str, object] = {}


class RankingBuilder(PooledBuilder[AnyRanking]):
    prefix = "rank"
    _scorer: Scorer

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context, read_headers(context.headers).tenant)

    def check_model(self, request: AnyRanking, card: ModelCard) -> None:
        check_ranks(card)

    def check_size(self, generations: Sequence[Generation]) -> None:
        """Vectors that are compared count for the client's share of bytes."""
        kinds = self._card.answers
        if scores_pairs(kinds):
            return
        n_vectors = len(generations)
        if kinds.pooling is Pooling.TOKEN:
            n_vectors = sum(len(generation.request.prompt_ids) for generation in generations)
        self.reserve(n_vectors * kinds.embedding_size, FLOAT64_BYTES)

    def texts(
        self, request: AnyRanking, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[PooledText]:
        self._scorer = scorer_of(card)(card, tokenizer, request.truncation, request.pairs)
        return self._scorer.texts()

    def format_body(self, vectors: Sequence[Vectors], usage: Usage) -> bytes:
        request = self._request
        scores = self._scorer.scores(vectors, request.use_activation)
        match request:
            case RerankRequest():
                return encode(self._ranks(request, scores, usage))
            case TextsRerankRequest():
                return encode(_text_ranks(request, scores))
            case ScoreRequest():
                return encode(self._scores(scores, usage))

    def _ranks(self, request: RerankRequest, scores: Sequence[float], usage: Usage) -> object:
        documents = request.whole_documents if request.return_documents else None
        results = [
            {
                "index": index,
                "relevance_score": scores[index],
                **({"document": documents[index]} if documents else NO_TEXT),
            }
            for index in _best(scores, request.top_n)
        ]
        if request.is_cohere:
            units = {"search_units": 1}
            meta = {"api_version": {"version": "2"}, "billed_units": units}
            return {"id": self._id, "results": results, "meta": meta}
        return {
            "id": self._id,
            "object": "list",
            "model": self._card.answers_as,
            "results": results,
            "usage": _usage(usage),
        }

    def _scores(self, scores: Sequence[float], usage: Usage) -> object:
        data = [
            {"index": index, "object": "score", "score": score}
            for index, score in enumerate(scores)
        ]
        return {
            "id": self._id,
            "object": "list",
            "created": int(time.time()),
            "model": self._card.answers_as,
            "data": data,
            "usage": _usage(usage),
        }


def _text_ranks(request: TextsRerankRequest, scores: Sequence[float]) -> object:
    return [
        {
            "index": index,
            "score": scores[index],
            **({"text": request.texts[index]} if request.return_text else NO_TEXT),
        }
        for index in _best(scores, request.top_n)
    ]


def _best(scores: Sequence[float], top_n: int | None) -> list[int]:
    """The indices of the scores, the highest first, and of equal ones the first one first."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return order[:top_n]


def _usage(usage: Usage) -> object:
    return {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}
