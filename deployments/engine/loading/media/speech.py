"""Makes models that transcribe ready for the engine, which runs their decoders as any other one."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import (
    PretrainedConfig,
    PreTrainedTokenizerBase,
    WhisperForCausalLM,
    WhisperForConditionalGeneration,
)
from transformers.models.whisper.tokenization_whisper import LANGUAGES

from deployments.contract.speech_rules import SpeechRules, TranscriptParams
from deployments.engine.forward.cross_attention import (
    FRAMES_PER_STATE,
    alignment_heads,
    extractor_of,
    replace_cross_attention,
)
from deployments.engine.loading.loaded_model import LoadedModel

START = "<|startoftranscript|>"
BEFORE, NO_TIMES = "<|startofprev|>", "<|notimestamps|>"
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")


def split_speech(loaded: LoadedModel) -> LoadedModel:
    """Splits a speech model into its decoder, which is run as any other one, and its encoder. Other
    models are returned as they are."""
    model = loaded.model
    if not isinstance(model, WhisperForConditionalGeneration):
        return loaded
    whole: Any = model
    with torch.device("meta"):
        decoder: Any = WhisperForCausalLM(copy.deepcopy(model.config))
    decoder.model.decoder, decoder.proj_out = whole.model.decoder, whole.proj_out
    decoder.generation_config = model.generation_config
    _share_config(decoder, decoder.config)
    replace_cross_attention(decoder)
    own = copy.deepcopy(model.config)
    own._attn_implementation = "sdpa"  # whatever the decoder's becomes
    for layer in whole.model.encoder.layers:
        _share_config(layer, own)
    return replace(loaded, model=decoder.eval(), speech=whole.model.encoder.eval())


def _share_config(module: nn.Module, config: PretrainedConfig) -> None:
    for part in module.modules():
        if hasattr(part, "config"):
            part.config = config


def speech_rules(loaded: LoadedModel, tokenizer: PreTrainedTokenizerBase) -> SpeechRules | None:
    """Returns the rules of a model that transcribes; None for a model that reads text."""
    if loaded.speech is None:
        return None
    model = loaded.model
    config: Any = model.generation_config
    extractor, ids = extractor_of(model.config), tokenizer.get_vocab()
    languages = getattr(config, "lang_to_id", None) or {}
    tasks = getattr(config, "task_to_id", None) or {} if languages else {}
    no_times = ids[NO_TIMES]
    return SpeechRules(
        sampling_rate=extractor.sampling_rate,
        window=extractor.n_samples,
        tick=extractor.hop_length * FRAMES_PER_STATE,
        start=ids[START],
        before=ids[BEFORE],
        no_speech=next((ids[name] for name in NO_SPEECH if name in ids), no_times - 1),
        transcript=TranscriptParams(
            first_time=no_times + 1,
            no_times=no_times,
            end=ids[str(tokenizer.eos_token)],
            max_first_time=getattr(config, "max_initial_timestamp_index", None),
            banned=_banned(config.suppress_tokens),
            banned_first=_banned(config.begin_suppress_tokens),
        ),
        transcribe=tasks.get("transcribe"),
        translate=tasks.get("translate"),
        can_align=bool(alignment_heads(model)),
        languages=tuple((name.strip("<|>"), at) for name, at in sorted(languages.items())),
        language_names=tuple(LANGUAGES.items()),
    )


def _banned(ids: list[int] | None) -> tuple[int, ...]:
    return tuple(id for id in ids or () if id >= 0)
