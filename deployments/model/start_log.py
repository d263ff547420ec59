"""Logs a few lines for people when the engine of a replica starts. Imports torch."""

import logging

import torch

from deployments.contract.model_card import ModelCard
from deployments.engine.core import EngineCore
from deployments.engine.loading.draft_heads.mtp_files import has_unused_head
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.text.chat.template_calls import describes_tools
from deployments.text.chat.templates import knows_tools
from deployments.text.dialects.registry import dialect_of
from deployments.text.tokens.tokenizer import TextTokenizer
from kv.shape import CacheShape

log = logging.getLogger("ray.serve")

GIB = 1 << 30
OTHER_TOOLS = (
    "its chat template describes tools in a form whose calls are not known here: requests describe "
    "them in the server's own form; the option `dialect` names another one"
)


def log_engine(name: str, loaded: LoadedModel, core: EngineCore, seconds: float) -> None:
    log.info("%s: %s", name, weights_line(loaded))
    log.info("%s: %s", name, cache_line(core.cache.shape, loaded.dtype))
    log.info("%s: ready after %.1f s", name, seconds)


def log_tools(card: ModelCard) -> None:
    """Says where requests describe tools in another form than the model's own template."""
    template = card.tool_template or card.chat_template or ""
    may_differ = knows_tools(template) and dialect_of(template).name == "generic"
    if may_differ and not describes_tools(template, card, TextTokenizer(card)):
        log.warning("%s: %s", card.name, OTHER_TOOLS)


def log_unused_head(name: str, path: str, loaded: LoadedModel) -> None:
    """Says where a model's files have a head that could draft."""
    if has_unused_head(path, loaded):
        log.info("%s: its files have an MTP head, which drafts with spec-type = mtp", name)


def weights_line(loaded: LoadedModel) -> str:
    kind, precision = type(loaded.model).__name__, str(loaded.dtype).removeprefix("torch.")
    return f"{kind} in {precision} on {loaded.device}, {gib(loaded.n_bytes)} of weights"


def cache_line(shape: CacheShape, dtype: torch.dtype) -> str:
    """A token has a page in each group of layers."""
    tokens = shape.n_pages // max(1, len(shape.groups)) * shape.page_size
    return (
        f"room for {tokens:,} tokens in {shape.n_pages:,} pages of {shape.page_size} "
        f"({gib(shape.n_pages * shape.page_bytes(dtype))}), {shape.max_tokens:,} tokens in a "
        f"sequence, {shape.max_tasks:,} sequences at once"
    )


def gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.2f} GiB"
