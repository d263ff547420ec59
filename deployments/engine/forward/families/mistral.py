"""Mistral: one window for all layers, or none."""

from transformers import MistralForCausalLM

from deployments.engine.forward.families.family import Family

MISTRAL = Family(MistralForCausalLM, window=lambda attention: attention.config.sliding_window)
