"""llama-server's fields as sampling parameters. Defaults are the model's, then llama-server's."""

import secrets
from typing import TypeVar

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import DryParams, SamplingParams
from deployments.ingress.generation.plan import check_ids
from deployments.ingress.http.schema import MAX_LOGIT_BIASES
from deployments.ingress.llamacpp.sampler_names import sampler_order
from deployments.ingress.llamacpp.sampling import dry_params, mirostat_params
from deployments.llama.completion.schema import CompletionFields
from deployments.text.tokens.tokenizer import TextTokenizer

FieldsT = TypeVar("FieldsT", bound=CompletionFields)

RANDOM_SEEDS = (-1, 2**32 - 1)  # llama-server shows the first as the second
NEUTRAL = SamplingParams()
# Parameters that a model's generation config may set, and the fields here.
RECOMMENDED = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}


def with_defaults(fields: FieldsT, card: ModelCard) -> FieldsT:
    """The fields, with the model's defaults and a seed for those that are unset."""
    own: dict[str, object] = {
        ours: getattr(card.sampling, theirs)
        for theirs, ours in RECOMMENDED.items()
        if ours not in fields.model_fields_set
        and getattr(card.sampling, theirs) != getattr(NEUTRAL, theirs)
    }
    if fields.seed in RANDOM_SEEDS:
        own["seed"] = secrets.randbits(31)
    return fields.model_copy(update=own)


def sampling_params(
    fields: CompletionFields, card: ModelCard, tokenizer: TextTokenizer
) -> SamplingParams:
    """`fields` are complete with defaults. A sampler that `samplers` leaves out is off."""
    order = sampler_order(fields.samplers)
    biases, bans = _biases(fields, card, tokenizer)
    return SamplingParams(
        temperature=fields.temperature if "temperature" in order else 1.0,
        dynatemp_range=fields.dynatemp_range,
        dynatemp_exponent=fields.dynatemp_exponent,
        top_k=fields.top_k if 0 < fields.top_k < card.vocab_size else 0,
        top_p=fields.top_p,
        min_p=fields.min_p,
        typical_p=fields.typical_p,
        top_n_sigma=max(fields.top_n_sigma, 0.0),
        xtc_probability=fields.xtc_probability,
        xtc_threshold=fields.xtc_threshold,
        repetition_penalty=fields.repeat_penalty,
        presence_penalty=fields.presence_penalty,
        frequency_penalty=fields.frequency_penalty,
        penalty_last_n=fields.repeat_last_n,
        dry=_dry(fields, card, tokenizer) if "dry" in order else None,
        mirostat=mirostat_params(fields.mirostat, fields.mirostat_tau, fields.mirostat_eta),
        logit_bias=biases,
        bad_words=bans,
        samplers=order or ("temperature",),  # () would be the engine's own order
        min_keep=fields.min_keep,
        seed=fields.seed,
        logprobs=fields.alternatives or None,
        sampled_logprobs=fields.post_sampling_probs,
    )


def _dry(fields: CompletionFields, card: ModelCard, tokenizer: TextTokenizer) -> DryParams | None:
    named = "dry_sequence_breakers" in fields.model_fields_set
    return dry_params(
        card,
        tokenizer,
        multiplier=fields.dry_multiplier,
        base=fields.dry_base,
        allowed_length=fields.dry_allowed_length,
        last_n=fields.dry_penalty_last_n,
        breakers=fields.dry_sequence_breakers if named else None,
    )


def _biases(
    fields: CompletionFields, card: ModelCard, tokenizer: TextTokenizer
) -> tuple[tuple[tuple[int, float], ...], tuple[tuple[int, ...], ...]]:
    """The biases of tokens, and the banned tokens."""
    added: dict[int, float] = {}
    banned: dict[int, None] = {}
    for key, bias in _bias_pairs(fields):
        ids = tokenizer.encode(key, add_special_tokens=False) if isinstance(key, str) else [key]
        check_ids(ids, card, "logit_bias")
        if bias is False:
            banned |= dict.fromkeys(ids)
        else:
            added |= dict.fromkeys(ids, float(bias))
    if len(added) + len(banned) > MAX_LOGIT_BIASES:
        raise refused(f"`logit_bias` must have at most {MAX_LOGIT_BIASES} tokens", "logit_bias")
    return tuple(added.items()), tuple((token_id,) for token_id in banned)


def _bias_pairs(fields: CompletionFields) -> list[tuple[int | str, float | bool]]:
    """Ids or texts, and their biases, from any of the forms. Raises Refused."""
    if isinstance(fields.logit_bias, dict):
        pairs = [(_key(key), bias) for key, bias in fields.logit_bias.items()]
    else:
        pairs = [_pair(index, *pair) for index, pair in enumerate(fields.logit_bias)]
    if any(bias is True for _, bias in pairs):
        raise refused(
            "`logit_bias`: a bias must be a number, or false to ban the token", "logit_bias"
        )
    return pairs


def _pair(
    index: int, key: int | float | str | bool, bias: int | float | str | bool
) -> tuple[int | str, float | bool]:
    is_key = isinstance(key, str) or (type(key) is int and key >= 0)
    if not is_key or isinstance(key, float) or isinstance(bias, str):
        param = f"logit_bias[{index}]"
        raise refused(f"`{param}` must be a token id or a text, and a number or false", param)
    return key, bias


def _key(key: str) -> int | str:
    """A key of digits is a token id."""
    return int(key) if key.isascii() and key.isdecimal() and len(key) < 10 else key
