"""A model's default sampling parameters, under those that a request sets."""

import secrets
from collections.abc import Mapping
from dataclasses import replace

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import SamplingParams

RANDOM_SEEDS = (None, -1)  # vLLM and llama-server write -1 for no seed


def over_model_defaults(
    card: ModelCard,
    fields: Mapping[str, object],
    *,
    seed: int | None = None,
    logprobs: int | None = None,
) -> SamplingParams:
    """`fields` are parameters by name, None for those that the request leaves open.

    A `top_k` that covers the vocabulary becomes 0, which is off. Without `seed` the seed is random,
    and without `logprobs` there are none, whatever the model's defaults.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    top_k = given.get("top_k", card.sampling.top_k)
    assert isinstance(top_k, int)
    given["top_k"] = top_k if 0 < top_k < card.vocab_size else 0
    given["seed"] = secrets.randbits(63) if seed in RANDOM_SEEDS else seed
    # Once: to copy so many fields takes some ten microseconds, of each request.
    return replace(card.sampling, **given, logprobs=logprobs)  # type: ignore[arg-type]
