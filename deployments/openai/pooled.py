"""The operations that answer with vectors, scores and decisions, with their paths here."""

from deployments.ingress.routes.service import Operation
from deployments.openai.decisions.builder import DecisionBuilder
from deployments.openai.decisions.schema import DecisionRequest, parse_decisions
from deployments.openai.decisions.systemone import SystemOneRequest, parse_systemone
from deployments.openai.embeddings.builder import EmbeddingBuilder
from deployments.openai.embeddings.schema import (
    EmbeddingsRequest,
    PoolingRequest,
    parse_embeddings,
    parse_pooling,
)
from deployments.openai.ranking.builder import RankingBuilder
from deployments.openai.ranking.classify import ClassifyBuilder, ClassifyRequest, parse_classify
from deployments.openai.ranking.schema import (
    RerankRequest,
    ScoreRequest,
    parse_rerank,
    parse_score,
)

VECTORS, RANKS, DECISIONS = "Embeddings", "Ranks and classes", "Decisions"

EMBEDDINGS = Operation(
    name="embeddings",
    path="/v1/embeddings",
    body=EmbeddingsRequest,
    parse=parse_embeddings,
    builder=EmbeddingBuilder,
    tag=VECTORS,
)
POOLING = Operation(
    name="pooling",
    path="/v1/pooling",
    body=PoolingRequest,
    parse=parse_pooling,
    builder=EmbeddingBuilder,
    tag=VECTORS,
)
RERANK = Operation(
    name="rerank",
    path="/v1/rerank",
    body=RerankRequest,
    parse=parse_rerank,
    builder=RankingBuilder,
    tag=RANKS,
)
SCORE = Operation(
    name="score",
    path="/v1/score",
    body=ScoreRequest,
    parse=parse_score,
    builder=RankingBuilder,
    tag=RANKS,
)
CLASSIFY = Operation(
    name="classify",
    path="/v1/classify",
    body=ClassifyRequest,
    parse=parse_classify,
    builder=ClassifyBuilder,
    tag=RANKS,
)
DECIDE = Operation(
    name="decisions",
    path="/v1/decisions",
    body=DecisionRequest,
    parse=parse_decisions,
    builder=DecisionBuilder,
    tag=DECISIONS,
)
SYSTEM_ONE = Operation(
    name="systemone",
    path="/v1/systemone",
    body=SystemOneRequest,
    parse=parse_systemone,
    builder=DecisionBuilder,
    tag=DECISIONS,
)
