"""Qwen 3: queries and keys are normed; the upper layers may have windows, but not those of Qwen 3
VL."""

from transformers import Qwen3ForCausalLM

from deployments.engine.forward.families.family import Family

QWEN3 = Family(
    Qwen3ForCausalLM,
    window=lambda attention: getattr(attention, "sliding_window", None),
    head_norms=lambda attention: (attention.q_norm, attention.k_norm),
)
