"""The same answers at the root: llama-server's embeddings and ranks, those of vLLM, Cohere and Text
Embeddings Inference.
"""

from dataclasses import replace

from starlette.routing import Route

from deployments.ingress.routes.service import Operation, Service
from deployments.openai.embeddings.builder import EmbeddingBuilder
from deployments.openai.embeddings.schema import (
    CohereEmbedRequest,
    EmbedRequest,
    NativeRequest,
    parse_cohere_embed,
    parse_embed,
    parse_native,
)
from deployments.openai.pooled import CLASSIFY, POOLING, RANKS, RERANK, SCORE, VECTORS
from deployments.openai.ranking.builder import RankingBuilder
from deployments.openai.ranking.schema import CohereRerankRequest, parse_cohere_rerank

NATIVE = Operation(
    name="embedding",
    path="/embedding",
    body=NativeRequest,
    parse=parse_native,
    builder=EmbeddingBuilder,
    tag=VECTORS,
)
TEI_EMBED = Operation(
    name="embed",
    path="/embed",
    body=EmbedRequest,
    parse=parse_embed,
    builder=EmbeddingBuilder,
    tag=VECTORS,
)
COHERE_EMBED = Operation(
    name="embed",
    path="/v2/embed",
    body=CohereEmbedRequest,
    parse=parse_cohere_embed,
    builder=EmbeddingBuilder,
    tag=VECTORS,
)
COHERE_RERANK = Operation(
    name="rerank",
    path="/v2/rerank",
    body=CohereRerankRequest,
    parse=parse_cohere_rerank,
    builder=RankingBuilder,
    tag=RANKS,
)


def pooled_routes(service: Service) -> list[Route]:
    return [
        service.route(NATIVE),
        service.route(replace(NATIVE, path="/embeddings")),
        service.route(TEI_EMBED),
        service.route(COHERE_EMBED),
        service.route(replace(POOLING, path="/pooling")),
        service.route(replace(RERANK, path="/rerank")),
        service.route(replace(RERANK, path="/reranking")),
        service.route(COHERE_RERANK),
        service.route(replace(SCORE, path="/score")),
        service.route(replace(CLASSIFY, path="/classify")),
    ]
