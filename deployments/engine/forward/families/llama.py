"""Llama, and all that has its layers under its name."""

from transformers import LlamaForCausalLM

from deployments.engine.forward.families.family import Family

LLAMA = Family(LlamaForCausalLM)
