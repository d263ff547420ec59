"""Reads the rotary embedding of a model, with all that scales it."""

from typing import Any

from deployments.engine.loading.gguf.facts import GGUFFacts

DEFAULT_THETA = 10_000.0
FREQUENCY_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"


def rope_parameters(facts: GGUFFacts, n_rotated: int) -> dict[str, Any]:
    """The config's parameters of a rotary embedding of `n_rotated` numbers of each head.

    Raises GGUFError for a scaling that is not known.
    """
    theta = facts.optional_number("rope.freq_base") or DEFAULT_THETA
    scaling = _scaling(facts)
    factors = facts.factors(FREQUENCY_FACTORS, n_rotated // 2)
    if factors is None:
        return {"rope_theta": theta, **scaling}
    if scaling["rope_type"] != "default":
        raise facts.error("rope.scaling.type", f"{FREQUENCY_FACTORS} scales as well")
    # Llama 3.1 and later ones: the file has what each frequency is divided by, and not what that
    # was computed from. LongRoPE divides by given numbers too.
    return {
        **_long_rope(factors, factors),
        "rope_theta": theta,
        "attention_factor": 1.0,
        "factor": 1.0,
        "original_max_position_embeddings": facts.size("context_length"),
    }


def long_rope_parameters(facts: GGUFFacts, n_rotated: int) -> dict[str, Any]:
    """The parameters of Phi's rotary embedding, which has other factors for long texts."""
    theta = facts.optional_number("rope.freq_base") or DEFAULT_THETA
    original = facts.optional_whole("rope.scaling.original_context_length")
    attention_factor = facts.optional_number("rope.scaling.attn_factor")
    long = facts.factors(LONG_FACTORS, n_rotated // 2)
    short = facts.factors(SHORT_FACTORS, n_rotated // 2)
    kind = facts.optional_text("rope.scaling.type")
    if kind not in (None, "none", "longrope"):
        raise facts.error("rope.scaling.type", f"{kind!r} is not supported")
    if long is None and short is None:
        if kind == "longrope":
            raise facts.error("rope.scaling.type", f"the file has no {LONG_FACTORS}")
        return {"rope_theta": theta, "rope_type": "default"}
    if long is None or short is None or not original:
        raise facts.error(
            "rope.scaling.original_context_length",
            f"it belongs together with {LONG_FACTORS} and {SHORT_FACTORS}, and one is missing",
        )
    found = {
        **_long_rope(long, short),
        "rope_theta": theta,
        "factor": max(1.0, facts.size("context_length") / original),
        "original_max_position_embeddings": original,
    }
    return found if attention_factor is None else {**found, "attention_factor": attention_factor}


def _long_rope(long: list[float], short: list[float]) -> dict[str, Any]:
    return {"rope_type": "longrope", "long_factor": long, "short_factor": short}


def _scaling(facts: GGUFFacts) -> dict[str, Any]:
    factor = facts.optional_number("rope.scaling.factor") or 1.0
    facts.optional_flag("rope.scaling.finetuned")  # how the model was made changes nothing
    # llama.cpp takes a file for linear that does not say how it scales.
    kind = facts.optional_text("rope.scaling.type") or "linear"
    if kind == "none" or (kind == "linear" and factor == 1):
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return {
            "rope_type": "yarn",
            "factor": factor,
            "beta_fast": facts.optional_number("rope.scaling.yarn_beta_fast") or 32.0,
            "beta_slow": facts.optional_number("rope.scaling.yarn_beta_slow") or 1.0,
            "original_max_position_embeddings": facts.size("rope.scaling.original_context_length"),
        }
    raise facts.error("rope.scaling.type", f"{kind!r} is not supported")
