"""All dialects by name, and the one that a chat template speaks."""

from functools import cache, lru_cache

from deployments.text.dialects.command import Command
from deployments.text.dialects.deepseek import DeepSeek, DeepSeek31
from deployments.text.dialects.dialect import Dialect
from deployments.text.dialects.family import Family
from deployments.text.dialects.gemma import FunctionGemma, Gemma4
from deployments.text.dialects.generic import Generic, Instructed
from deployments.text.dialects.glm import Glm
from deployments.text.dialects.granite import Granite, Granite32
from deployments.text.dialects.harmony import Harmony
from deployments.text.dialects.hermes import Hermes
from deployments.text.dialects.hunyuan import Hunyuan, Hunyuan3
from deployments.text.dialects.kimi import Kimi
from deployments.text.dialects.listed import Jamba, Nemotron
from deployments.text.dialects.llama3_json import Llama3Json
from deployments.text.dialects.minimax import MiniMax
from deployments.text.dialects.mistral import Mistral
from deployments.text.dialects.phi4 import Phi4
from deployments.text.dialects.pythonic import Pythonic
from deployments.text.dialects.qwen3_coder import Qwen3Coder
from deployments.text.dialects.seed import Seed

# Marks that several families write come after those that one family alone does.
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
DIALECTS: dict[str, Dialect] = {one.name: one for one in ORDER}


@lru_cache(maxsize=64)  # asked with every request
def dialect_of(template: str | None) -> Dialect:
    """The first, in that order, that the template speaks."""
    return next(one for one in ORDER if one.is_spoken_by(template or ""))


@cache
def instructed(family: Dialect) -> Dialect:
    """What a model of the family speaks when it is told in words how to call.

    Harmony stays: nothing else reads the headers of its messages.
    """
    return Instructed(family) if isinstance(family, Family) else family
