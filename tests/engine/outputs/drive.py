"""Asks engines for vectors."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from deployments.contract.errors import RequestError
from deployments.contract.events import FinishReason, TokenEvent, merge
from deployments.contract.outputs import ModelTask, OutputParams, Pooling, PoolParams
from deployments.contract.requests import GenerationRequest
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.model_tasks import answer_as
from deployments.engine.loading.sentence_files import SentenceFiles
from deployments.engine.outputs.vectors import unpack
from kv.content import PLAIN, Content
from tests import effort
from tests.engine.drive import Engine, engine, roomy

Floats = NDArray[np.float32]
# Of float32 vectors, against transformers on the CPU, and when one sum is in another order.
EXACT: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5 if effort.device == "cpu" else 5e-5}
ALIKE: dict[str, Any] = {"rtol": 1e-6, "atol": 4e-6} if effort.device == "cpu" else EXACT


def ask(
    name: str,
    ids: Iterable[int],
    output: OutputParams | None = None,
    *,
    second_at: int = 0,
    content: Content = PLAIN,
) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_ids=tuple(ids),
        max_tokens=0,
        output=output or PoolParams(),
        second_at=second_at,
        content=content,
    )


def answers(core: EngineCore, *requests: GenerationRequest) -> list[Floats]:
    """Returns the vectors of each request, [n, size]."""
    events: list[list[TokenEvent]] = [[] for _ in requests]
    for index, event in core.run(requests):
        events[index].append(event)
    return [_vectors(merge(of_request)) for of_request in events]


def _vectors(last: TokenEvent) -> Floats:
    assert last.error is None, last.error
    assert last.finish_reason is FinishReason.STOP
    assert not last.token_ids
    assert last.vectors is not None
    return unpack(last.vectors)


def refusal(core: EngineCore, request: GenerationRequest) -> RequestError:
    [(_, event)] = core.run([request])
    assert event.error is not None
    return event.error


@contextmanager
def embedder(
    model: PreTrainedModel,
    *,
    task: ModelTask = ModelTask.EMBED,
    files: SentenceFiles | None = None,
    pooling: Pooling | None = None,
    limits: EngineLimits | None = None,
) -> Iterator[Engine]:
    """An engine on a model that was told what it is for."""
    told = answer_as(LoadedModel(model), task, files, pooling)
    with engine(model=told, limits=limits or roomy()) as running:
        yield running
