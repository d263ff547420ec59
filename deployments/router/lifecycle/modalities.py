"""Tells by a model's files alone what it takes beside text, before anybody loads it.

It blocks, on files: never to be called on an event loop.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from deployments.contract.media_rules import MediaKind
from deployments.engine.loading.gguf.names import is_gguf
from deployments.media.rules import kinds_of, processor_of
from deployments.model.local_files import local_model
from deployments.model.settings import ModelSettings
from deployments.model.weights_form import CONFIG, CONFIG_ERRORS

TEXT = "text"
TOWERS = {MediaKind.IMAGE: "vision_config", MediaKind.AUDIO: "audio_config"}
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")
TRANSCRIBES = "WhisperForConditionalGeneration"


def input_modalities(settings: ModelSettings) -> tuple[str, ...] | None:
    """Returns them in the order that lists of models have. None: its files don't say it, or are
    not on this disk."""
    try:
        folder = local_model(settings.path)
        if is_gguf(folder.name):
            return (TEXT,) if folder.is_file() else None
        config = json.loads((folder / CONFIG).read_text())
        return _modalities(config, folder, can_encode=settings.tensor_parallel == 1)
    except CONFIG_ERRORS:
        return None


def _modalities(
    config: Mapping[str, Any], folder: Path, *, can_encode: bool
) -> tuple[str, ...] | None:
    """can_encode: ranks have no towers."""
    classes = config.get("architectures") or ()
    if TRANSCRIBES in classes:
        return (MediaKind.AUDIO,)
    towers = {kind for kind, name in TOWERS.items() if config.get(name)}
    is_language_model = any(name.endswith("ForCausalLM") for name in classes)
    if not towers or is_language_model or not can_encode:
        return (TEXT,)
    described = _processor_fields(folder)
    if described is None:
        return (TEXT,)
    name = described.get("processor_class") or processor_of(config["model_type"])
    return None if name is None else (TEXT, *(kind for kind in kinds_of(name) if kind in towers))


def _processor_fields(folder: Path) -> Mapping[str, Any] | None:
    """Reads the fields of all its files; None without any."""
    found: list[Mapping[str, Any]] = []
    for name in PROCESSOR_FILES:
        with suppress(FileNotFoundError):
            found.append(json.loads((folder / name).read_text()))
    return {key: value for fields in found for key, value in fields.items()} if found else None
