"""A GGUF file as the files of a model."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from deployments.engine.errors import unsupported_on_error
from deployments.engine.loading.formats.quantized_model import model_of_weights
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.model_plan import GGUFPlan, read_plan
from deployments.engine.loading.gguf.reader import GGUF, read_gguf
from deployments.engine.loading.gguf.tokenizing.gguf_tokenizer import (
    read_end_ids,
    read_gguf_tokenizer,
)
from deployments.engine.loading.model_files import ModelFiles
from deployments.engine.loading.sentence_files import SentenceFiles

POOLER = "pooler"  # of BERT


@lru_cache(2)  # of a model and of its draft
def _read(path: Path, _time: int, _size: int) -> GGUF:
    """A model that is loaded is asked for its tokenizer first, by somebody else. What a vocabulary
    takes is given back with its weights."""
    return read_gguf(path)


class GGUFFiles(ModelFiles):
    """The model of one file, or of a split one whose first part it is."""

    def __init__(self, path: str) -> None:
        self._path = path

    @cached_property
    def _gguf(self) -> GGUF:
        path = Path(self._path)
        if not path.is_file():
            return read_gguf(path)  # which says so
        found = os.stat(path)
        return _read(path, found.st_mtime_ns, found.st_size)

    @cached_property
    def _plan(self) -> GGUFPlan:
        return read_plan(self._gguf)

    def config(self) -> PretrainedConfig:
        config = self._plan.config
        config.name_or_path = self._path
        return config

    def sentence_files(self) -> SentenceFiles | None:
        pooling = self._plan.pooling
        return None if pooling is None else SentenceFiles(pooling=pooling)

    def is_quantized(self) -> bool:
        return any(source.stays_quantized for source in self._plan.sources.values())

    def check(self) -> None:
        """The plan has done so."""

    def tokenizer(self) -> PreTrainedTokenizerBase:
        with self._named():
            text = read_gguf_tokenizer(self._gguf.metadata)
        with unsupported_on_error(f"the tokenizer of {self._path} can't be loaded"):
            tokenizer = PreTrainedTokenizerFast(
                tokenizer_object=text.tokenizer, **dict(text.special_tokens)
            )
        tokenizer.chat_template = {**text.chat_templates} or None
        return tokenizer

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Within, errors that name a key name the file as well."""
        try:
            yield
        except GGUFError as error:
            raise GGUFError(f"{self._path}: {error}") from error

    def processor(self, config: PretrainedConfig) -> Any:
        return None

    def read_weights(
        self, config: PretrainedConfig, dtype: torch.dtype, auto: Any
    ) -> PreTrainedModel:
        sources = self._plan.sources
        weights = {name: source.weight(dtype) for name, source in sources.items()}
        model = model_of_weights(config, weights, dtype, auto)
        _read.cache_clear()
        if POOLER in model._modules and not any(name.startswith(POOLER) for name in sources):
            model._modules[POOLER] = None  # no file has it, and nothing reads what it computes
        if model.can_generate():
            with self._named():
                model.generation_config.eos_token_id = sorted(read_end_ids(self._gguf.metadata))
        return model.eval()
