"""The `generation_settings` of a completion, with llama-server's names and in its order."""

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import SamplingParams
from deployments.ingress.generation.chosen_adapters import chosen_adapters
from deployments.ingress.llamacpp.sampler_names import sampler_order
from deployments.llama.completion.schema import CompletionFields

# Fields of a request, which /props and /slots leave out.
OF_REQUESTS = (
    "dry_sequence_breakers",
    "stop",
    "logit_bias",
    "grammar",
    "grammar_lazy",
    "grammar_triggers",
    "preserved_tokens",
)
SAMPLING = (
    "seed",
    "temperature",
    "dynatemp_range",
    "dynatemp_exponent",
    "top_k",
    "top_p",
    "min_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "typical_p",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
)


def generation_settings(
    fields: CompletionFields, sampling: SamplingParams, card: ModelCard
) -> dict[str, object]:
    """`fields` are complete with defaults, and `sampling` was made of them."""
    return {
        **{name: getattr(fields, name) for name in SAMPLING},
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "stop": list(fields.stops),
        "max_tokens": fields.token_limit,
        "n_predict": fields.token_limit,
        "n_keep": fields.n_keep,
        "n_discard": 0,
        "ignore_eos": fields.ignore_eos,
        "stream": fields.stream,
        "logit_bias": _biases(fields, sampling, card),
        "n_probs": fields.alternatives,
        "min_keep": fields.min_keep,
        "grammar": fields.grammar,
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "chat_format": "Content-only",
        "reasoning_format": "none",
        "reasoning_in_content": False,
        "generation_prompt": "",
        "samplers": list(sampler_order(fields.samplers)),
        "speculative.types": "none",
        "timings_per_token": fields.timings_per_token,
        "post_sampling_probs": fields.post_sampling_probs,
        "backend_sampling": False,
        "lora": [
            {"id": adapter.id, "scale": scale}
            for adapter, scale in chosen_adapters(card, fields.lora_scales)
        ],
    }


def default_settings(
    fields: CompletionFields, sampling: SamplingParams, card: ModelCard
) -> dict[str, object]:
    """The settings of a request that sets no field."""
    settings = generation_settings(fields, sampling, card)
    return {name: value for name, value in settings.items() if name not in OF_REQUESTS}


def _biases(
    fields: CompletionFields, sampling: SamplingParams, card: ModelCard
) -> list[dict[str, float | None]]:
    """A banned token has a bias of minus infinity, which JSON writes as null."""
    banned = (token_id for word in sampling.bad_words for token_id in word)
    ends = card.eos_token_ids if fields.ignore_eos else ()
    never = dict.fromkeys((*ends, *banned))
    return [
        {"token": token_id, "bias": bias}
        for token_id, bias in (*never.items(), *sampling.logit_bias)
    ]
