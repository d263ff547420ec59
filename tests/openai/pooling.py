"""Models that answer with vectors, and requests to them in any protocol's application."""

import base64
import struct
from collections.abc import Sequence

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Activation, AnswerKinds, ModelTask, Pooling, PoolParams
from deployments.contract.requests import GenerationRequest
from deployments.ingress.settings import DEFAULTS, IngressSettings
from tests.ingress import edge
from tests.ingress.edge import Asked
from tests.ingress.engines import Script, pools
from tests.text.cards import card

SIZE = 4
EMBEDS = AnswerKinds(
    task=ModelTask.EMBED,
    can_generate=False,
    can_embed=True,
    pooling=Pooling.MEAN,
    embedding_size=SIZE,
    normalizes=True,
    prompts=(("query", "Hello "), ("passage", "how ")),
    max_input_tokens=32,
)
GENERATES = AnswerKinds(can_embed=True, embedding_size=SIZE)
SCORES = AnswerKinds(
    task=ModelTask.SCORE,
    can_generate=False,
    can_embed=True,  # by its body, which has a head of its own
    takes_pairs=True,
    labels=("relevant",),
    activation=Activation.SIGMOID,
    max_input_tokens=64,
)
CLASSIFIES = AnswerKinds(
    task=ModelTask.CLASSIFY,
    can_generate=False,
    labels=("bad", "fair", "good"),
    activation=Activation.SOFTMAX,
)


def known(answers: AnswerKinds, name: str = "tiny") -> ModelCard:
    return card(name=name, answers=answers)


def numbers_of(request: GenerationRequest) -> list[float]:
    """Four numbers that depend on all ids, none of which is a float32's short decimal."""
    ids = request.prompt_ids
    weighted = sum(index * token_id for index, token_id in enumerate(ids, start=1))
    return [len(ids) / 3, ids[0] / 7, ids[-1] / 11, weighted / 13]


def vectors_of(request: GenerationRequest) -> list[list[float]]:
    params = request.output
    assert isinstance(params, PoolParams)
    assert request.max_tokens == 0
    if params.pooling is Pooling.TOKEN:
        return [[token_id / 3, 1, 2, 3] for token_id in request.prompt_ids]
    return [numbers_of(request)[: params.dimensions]]


def float32(values: Sequence[float]) -> list[float]:
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def decoded(text: str) -> list[float]:
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def asked(
    path: str,
    body: object,
    model: ModelCard,
    script: Script | None = None,
    settings: IngressSettings = DEFAULTS,
) -> Asked:
    return edge.asked(path, body, model, script=script or pools(vectors_of), settings=settings)
