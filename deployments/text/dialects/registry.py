"""All dialects by name, and the choice of the dialect of a chat template."""

from functools import cache, lru_cache

from deployments.text.dialects.dialect import Dialect
from deployments.text.dialects.families.deepseek import DeepSeek, DeepSeek31
from deployments.text.dialects.families.gemma import FunctionGemma, Gemma4
from deployments.text.dialects.families.harmony import Harmony
from deployments.text.dialects.families.hermes import Generic, GenericOfFamily, Hermes
from deployments.text.dialects.families.json_lists import (
    Command,
    Granite,
    Granite32,
    Hunyuan,
    Jamba,
    Nemotron,
    Phi4,
)
from deployments.text.dialects.families.kimi import Kimi
from deployments.text.dialects.families.llama3_json import Llama3Json
from deployments.text.dialects.families.mistral import Mistral
from deployments.text.dialects.families.pythonic import Pythonic
from deployments.text.dialects.families.tagged_calls import Glm, Hunyuan3, MiniMax, Qwen3Coder, Seed
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks

# Marks of a single family come before those that several families write.
ORDER: tuple[Dialect, ...] = (
    Harmony(),
    Kimi(),
    DeepSeek(),
    DeepSeek31(),
    Mistral(),
    MiniMax(),
    Seed(),
    Hunyuan3(),
    Glm(),
    Command(),
    FunctionGemma(),
    Gemma4(),
    Pythonic(),
    Llama3Json(),
    Phi4(),
    Granite32(),
    Granite(),
    Nemotron(),
    Hunyuan(),
    Jamba(),
    Qwen3Coder(),
    Hermes(),
    Generic(),
)
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in ORDER}


@lru_cache(maxsize=64)  # every request reads it
def dialect_of(template: str | None) -> Dialect:
    """The first dialect in that order that matches the template."""
    return next(dialect for dialect in ORDER if dialect.matches_template(template or ""))


@cache
def generic_of(family: Dialect) -> Dialect:
    """The dialect of a model of the family if the prompt describes calls as text.

    Harmony stays, because only it reads the headers of its messages.
    """
    return GenericOfFamily(family) if isinstance(family, MarkedBlocks) else family
