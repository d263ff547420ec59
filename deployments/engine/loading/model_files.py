"""The files of a model, in whichever form they are: those of the hub, or one in GGUF."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from deployments.engine.loading.sentence_files import SentenceFiles


class ModelFiles(ABC):
    """Reads what a model's files say. Each method raises UnsupportedModelError for what is not
    served, and OSError where there is no such file."""

    @abstractmethod
    def config(self) -> PretrainedConfig: ...

    @abstractmethod
    def sentence_files(self) -> SentenceFiles | None:
        """Returns how hidden states become vectors; None: the files don't say it."""

    @abstractmethod
    def is_quantized(self) -> bool:
        """Whether linear layers are quantized in the files."""

    def has_kv_scales(self) -> bool:
        """Whether the files say by what keys and values are divided for a cache of 8 bits."""
        return False

    @abstractmethod
    def check(self) -> None:
        """Looks at the files before anything is allocated."""

    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerBase: ...

    @abstractmethod
    def processor(self, config: PretrainedConfig) -> Any:
        """Returns the processor of a model that sees or hears, or None."""

    @abstractmethod
    def read_weights(
        self, config: PretrainedConfig, dtype: torch.dtype, auto: Any
    ) -> PreTrainedModel:
        """The model that `auto` makes of its config, with all weights. Those that are quantized in
        the files stay so."""
