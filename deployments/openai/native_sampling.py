"""llama-server's sampling fields as sampling parameters."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from deployments.ingress.llamacpp.sampler_names import sampler_order
from deployments.openai.defaults import given
from deployments.openai.fields.llamacpp_fields import LlamaCppFields
from deployments.text.tokens.token_search import ids_with
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import DryParams, MirostatParams, ModelCard, SamplingParams, refused

BREAKERS = ("\n", ":", '"', "*")
DRY_BASE, DRY_ALLOWED_LENGTH, DRY_LAST_N = 1.75, 2, 64  # llama-server's own
TAU, ETA = 5.0, 0.1
# Fields and the parameters of the same meaning.
SAME = {
    "dynatemp_range": "dynatemp_range",
    "dynatemp_exponent": "dynatemp_exponent",
    "typical_p": "typical_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_last_n",
    "min_keep": "min_keep",
}


def with_llamacpp_fields(
    drawing: SamplingParams, fields: LlamaCppFields, card: ModelCard, tokenizer: TextTokenizer
) -> SamplingParams:
    """The parameters, with those that llama-server's fields set. Raises Refused."""
    named = {theirs: getattr(fields, ours) for ours, theirs in SAME.items()}
    changes: dict[str, object] = {name: one for name, one in named.items() if one is not None}
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
        tau, eta = given(fields.mirostat_tau, TAU), given(fields.mirostat_eta, ETA)
        changes["mirostat"] = mirostat_params(fields.mirostat, tau, eta)
    if fields.samplers is not None:
        changes |= _ordered(sampler_order(fields.samplers))
    return replace(drawing, **changes) if changes else drawing  # type: ignore[arg-type]


def _ordered(order: tuple[str, ...]) -> dict[str, object]:
    """The changes that `samplers` makes. A sampler that is left out is off."""
    # () would be the engine's own order
    changes: dict[str, object] = {"samplers": order or ("temperature",)}
    if "temperature" not in order:
        changes["temperature"] = 1.0
    if "dry" not in order:
        changes["dry"] = None
    return changes


def dry_params(
    card: ModelCard,
    tokenizer: TextTokenizer,
    *,
    multiplier: float,
    base: float,
    allowed_length: int,
    last_n: int,
    breakers: Sequence[str] | None,
) -> DryParams | None:
    """None if they have no effect. Without `breakers` llama-server's are used, if tokens contain
    them. Raises Refused.
    """
    if not multiplier or not last_n:
        return None
    ids: set[int] = set()
    for text in BREAKERS if breakers is None else breakers:
        found = ids_with(text, card.vocab_size, tokenizer)
        if not found and breakers is not None:
            message = f"`dry_sequence_breakers`: no token of this model contains {text!r}"
            raise refused(message, "dry_sequence_breakers")
        ids |= found
    return DryParams(
        multiplier=multiplier,
        base=base,
        allowed_length=allowed_length,
        last_n=last_n,
        breakers=tuple(sorted(ids)),
    )


def mirostat_params(version: Literal[0, 1, 2], tau: float, eta: float) -> MirostatParams | None:
    return MirostatParams(version=version, tau=tau, eta=eta) if version else None
