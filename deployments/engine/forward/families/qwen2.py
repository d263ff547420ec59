"""Qwen 2 and 2.5: biases on queries, keys and values; the upper layers may have windows."""

from transformers import Qwen2ForCausalLM

from deployments.engine.forward.families.family import Family

QWEN2 = Family(Qwen2ForCausalLM, window=lambda attention: attention.sliding_window)
