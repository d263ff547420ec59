"""Engines with and without a folder for prefixes, and what is asked of them."""

import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.fingerprint import WeightsIdentity
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import default_dtype, finish_weights
from deployments.engine.threads import one_thread
from tests.bench.engine import SHAPES

# Weights are drawn from one seed: a restart has the same.
IDENTITY = WeightsIdentity(weights=("tests.bench.tiers",))
MAX_TOKENS = 65_536  # that any prompt may have here

Ids = tuple[int, ...]


@contextmanager
def engine(shape: str, folder: Path | None, **limits: int) -> Iterator[EngineCore]:
    """An engine of random weights, with prefixes kept in `folder` if there is one."""
    config = deepcopy(SHAPES[shape])
    assert isinstance(config, LlamaConfig)
    config.max_position_embeddings = MAX_TOKENS
    with one_thread():
        torch.manual_seed(0)
        dtype = default_dtype("cpu", config)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        finish_weights(model, "cpu")
    kept = None if folder is None else str(folder)
    sizes = replace(EngineLimits(cache_disk=kept, cache_disk_write_mib=4096), **limits)  # type: ignore[arg-type]
    core = EngineCore(LoadedModel(model), frozenset(), sizes, identity=IDENTITY)
    try:
        yield core
    finally:
        core.shutdown()


def pages_for(n_tokens: int) -> int:
    return -(-n_tokens // EngineLimits().page_size)


class Words:
    """Draws tokens that never come twice in this order."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, n: int) -> Ids:
        with one_thread():
            return tuple(torch.randint(4096, (n,), generator=self._generator).tolist())


def request(prompt: Sequence[int], max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt_ids=tuple(prompt),
        sampling=SamplingParams(temperature=0),
        max_tokens=max_tokens,
        ignore_eos=True,
    )


@dataclass
class Timed:
    """When the tokens of some requests came, in seconds since all were asked for."""

    moments: list[list[float]]
    n_cached: list[int]
    seconds: float = 0.0
    tokens: list[list[int]] = field(default_factory=list)

    @property
    def first_token_s(self) -> float:
        """The median."""
        return statistics.median(moments[0] for moments in self.moments)

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.moments)) / self.seconds

    @property
    def gaps(self) -> list[float]:
        return [b - a for moments in self.moments for a, b in pairwise(moments)]


def ask(core: EngineCore, prompts: Sequence[Ids], max_tokens: int) -> Timed:
    """Asks all at once."""
    timed = Timed([[] for _ in prompts], [0] * len(prompts), tokens=[[] for _ in prompts])
    began = time.perf_counter()
    for index, event in core.run([request(prompt, max_tokens) for prompt in prompts]):
        assert event.error is None, event.error
        timed.moments[index] += [time.perf_counter() - began] * len(event.token_ids)
        timed.tokens[index] += event.token_ids
        timed.n_cached[index] = event.cached_tokens
    timed.seconds = time.perf_counter() - began
    return timed


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
