"""The sampling parameters of a request. Unset fields take the model's defaults."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import SamplingParams
from deployments.ingress.generation.plan import check_ids
from deployments.ingress.generation.sampling_defaults import over_model_defaults
from deployments.ingress.llamacpp.sampler_names import sampler_order
from deployments.ingress.llamacpp.sampling import (
    DRY_ALLOWED_LENGTH,
    DRY_BASE,
    DRY_LAST_N,
    MIROSTAT_ETA,
    MIROSTAT_TAU,
    dry_params,
    mirostat_params,
)
from deployments.openai.fields.common import CommonFields
from deployments.openai.fields.llamacpp_fields import LlamaCppFields
from deployments.text.tokens.tokenizer import TextTokenizer

Value = TypeVar("Value")

# Parameters that a request sets by their own names.
COMMON = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
# llama-server's fields, and the parameters of the same meaning.
LLAMACPP = {
    "dynatemp_range": "dynatemp_range",
    "dynatemp_exponent": "dynatemp_exponent",
    "typical_p": "typical_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_last_n",
    "min_keep": "min_keep",
}


def sampling_params(
    fields: LlamaCppFields, card: ModelCard, tokenizer: TextTokenizer, logprobs: int | None
) -> SamplingParams:
    common = common_sampling(fields, card, logprobs)
    sampling = with_llamacpp_fields(common, fields, card, tokenizer)
    if not fields.bad_words and fields.logit_bias is None:
        return sampling
    return replace(
        sampling,
        logit_bias=given(biases(fields.logit_bias, card), sampling.logit_bias),
        bad_words=bad_words(fields.bad_words or (), tokenizer),
    )


def common_sampling(fields: CommonFields, card: ModelCard, logprobs: int | None) -> SamplingParams:
    common = {name: getattr(fields, name) for name in COMMON}
    return over_model_defaults(card, common, seed=fields.seed, logprobs=logprobs)


def with_llamacpp_fields(
    sampling: SamplingParams, fields: LlamaCppFields, card: ModelCard, tokenizer: TextTokenizer
) -> SamplingParams:
    """The parameters, with those that llama-server's fields set. Raises Refused."""
    named = {theirs: getattr(fields, ours) for ours, theirs in LLAMACPP.items()}
    changes: dict[str, object] = {name: value for name, value in named.items() if value is not None}
    if fields.top_n_sigma is not None:
        changes["top_n_sigma"] = max(fields.top_n_sigma, 0.0)
    if fields.dry_multiplier is not None:
        changes["dry"] = dry_params(
            card,
            tokenizer,
            multiplier=fields.dry_multiplier,
            base=given(fields.dry_base, DRY_BASE),
            allowed_length=given(fields.dry_allowed_length, DRY_ALLOWED_LENGTH),
            last_n=given(fields.dry_penalty_last_n, DRY_LAST_N),
            breakers=fields.dry_sequence_breakers,
        )
    if fields.mirostat is not None:
        tau, eta = (
            given(fields.mirostat_tau, MIROSTAT_TAU),
            given(fields.mirostat_eta, MIROSTAT_ETA),
        )
        changes["mirostat"] = mirostat_params(fields.mirostat, tau, eta)
    if fields.samplers is not None:
        changes |= _sampler_changes(sampler_order(fields.samplers))
    return replace(sampling, **changes) if changes else sampling  # type: ignore[arg-type]


def _sampler_changes(order: tuple[str, ...]) -> dict[str, object]:
    """The changes that `samplers` makes. A sampler that is left out is off."""
    # () would be the engine's own order
    changes: dict[str, object] = {"samplers": order or ("temperature",)}
    if "temperature" not in order:
        changes["temperature"] = 1.0
    if "dry" not in order:
        changes["dry"] = None
    return changes


def biases(
    logit_bias: dict[str, float] | None, card: ModelCard
) -> tuple[tuple[int, float], ...] | None:
    if logit_bias is None:
        return None
    for name in logit_bias:
        if not (name.isascii() and name.isdecimal() and len(name) < 10):
            raise refused(f"`logit_bias`: the key {name[:20]!r} is not a token id", "logit_bias")
    found = {int(name): bias for name, bias in logit_bias.items()}
    check_ids(tuple(found), card, "logit_bias")
    return tuple(found.items())


def bad_words(words: Sequence[str], tokenizer: TextTokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word, at the start of a text and after a space."""
    texts = (text for word in words for text in (word, f" {word.lstrip()}"))
    ids = (tuple(tokenizer.encode(text, add_special_tokens=False)) for text in texts)
    return tuple(dict.fromkeys(filter(None, ids)))


def given(value: Value | None, default: Value) -> Value:
    return default if value is None else value
