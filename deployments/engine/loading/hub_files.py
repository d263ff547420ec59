"""A directory, or a hub id, as the files of a model."""

from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from deployments.engine.errors import unsupported_on_error
from deployments.engine.loading.checks import (
    check_generation_file,
    check_tokenizer_files,
    check_weight_files,
)
from deployments.engine.loading.configs.reader import read_config
from deployments.engine.loading.formats.checkpoint import checkpoint_files, has_kv_scales
from deployments.engine.loading.formats.methods import quantization_options
from deployments.engine.loading.formats.quantized_model import load_quantized, quantized_checkpoint
from deployments.engine.loading.media.media_processors import load_processor
from deployments.engine.loading.model_files import ModelFiles
from deployments.engine.loading.sentence_files import SentenceFiles, read_sentence_files
from deployments.engine.loading.tokenizing.tokenizer_files import read_tokenizer
from deployments.engine.loading.weights_check import check_weights


class HubFiles(ModelFiles):
    """The files that transformers writes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def config(self) -> PretrainedConfig:
        return read_config(self._path)

    def sentence_files(self) -> SentenceFiles | None:
        return read_sentence_files(self._path)

    def is_quantized(self) -> bool:
        return quantization_options(self.config()) is not None

    def has_kv_scales(self) -> bool:
        config = self.config()
        return quantization_options(config) is not None and has_kv_scales(
            checkpoint_files(self._path, config)
        )

    def check(self) -> None:
        check_weight_files(self._path)
        check_generation_file(self._path)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        check_tokenizer_files(self._path)
        with unsupported_on_error(f"the tokenizer of {self._path} can't be loaded"):
            return read_tokenizer(self._path)

    def processor(self, config: PretrainedConfig) -> Any:
        return load_processor(self._path, config)

    def read_weights(
        self, config: PretrainedConfig, dtype: torch.dtype, auto: Any
    ) -> PreTrainedModel:
        """Reads every weight from the files. Raises UnsupportedModelError if one is missing."""
        checkpoint = quantized_checkpoint(self._path, config, dtype)
        check_weights(self._path, config, dtype, auto, checkpoint)
        model: PreTrainedModel
        with unsupported_on_error(f"{config.model_type} can't be loaded"):
            if checkpoint is not None:
                model = load_quantized(self._path, config, checkpoint, dtype, auto)
            else:
                model = auto.from_pretrained(
                    self._path, config=config, dtype=dtype, device_map=None, trust_remote_code=False
                )
        return model.eval()
