"""Qwen 3: queries and keys are normed; the upper layers may have windows."""

from transformers import Qwen3ForCausalLM

from deployments.engine.forward.families.family import Family

QWEN3 = Family(
    Qwen3ForCausalLM,
    window=lambda attention: attention.sliding_window,
    head_norms=lambda attention: (attention.q_norm, attention.k_norm),
)
