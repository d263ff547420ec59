"""A tiny random Whisper, which hears a second at once, and its vocabulary of characters."""

import uuid
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from deployments.contract.media_rules import MediaKind
from deployments.contract.requests import GenerationRequest, MediumFile, SamplingParams
from deployments.contract.speech_rules import TranscriptParams
from deployments.engine.engine import InferenceEngine
from deployments.engine.limits import EngineLimits
from kv.content import DIGEST_BYTES, Content, PlaceholderRange
from tests.engine.drive import loaded

N_TIMES = 51
WINDOW = 16_000  # samples
MAX_TOKENS = 64
LANGUAGES = ("<|en|>", "<|de|>")
SPECIAL = (
    *("<|endoftext|>", "<|startoftranscript|>", *LANGUAGES, "<|translate|>", "<|transcribe|>"),
    *("<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
)
TIMES = tuple(f"<|{tick * 0.02:.2f}|>" for tick in range(N_TIMES))


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: at for at, letter in enumerate(letters)}
    inner = Tokenizer(models.BPE(vocabulary, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([*SPECIAL])
    inner.add_tokens([*TIMES])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    )


def tiny_whisper(seed: int = 0) -> WhisperForConditionalGeneration:
    ids = tiny_tokenizer().get_vocab()
    end = ids["<|endoftext|>"]
    config = WhisperConfig(
        vocab_size=len(ids),
        num_mel_bins=80,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=WINDOW // 320,
        max_target_positions=MAX_TOKENS,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=ids["<|startoftranscript|>"],
        suppress_tokens=None,
        begin_suppress_tokens=None,
        init_std=0.6,
    )
    torch.manual_seed(seed)
    model = WhisperForConditionalGeneration(config).eval()
    generation = model.generation_config
    generation.no_timestamps_token_id = ids["<|notimestamps|>"]
    generation.max_initial_timestamp_index = 25
    generation.is_multilingual = True
    generation.lang_to_id = {name: ids[name] for name in LANGUAGES}
    generation.task_to_id = {name: ids[f"<|{name}|>"] for name in ("translate", "transcribe")}
    generation.suppress_tokens = [5, 6]
    generation.begin_suppress_tokens = [7, end]
    generation.max_length = MAX_TOKENS
    generation.alignment_heads = [[0, 1], [1, 2], [1, 3]]
    return model


def noise(seed: int, n: int = WINDOW) -> NDArray[np.int16]:
    random = np.random.default_rng(seed)
    tone = np.sin(np.arange(n) * random.uniform(0.01, 0.5)) * random.uniform(0.1, 0.9)
    made: NDArray[np.int16] = ((tone + random.normal(0, 0.05, n)).clip(-1, 1) * 32767).astype("<i2")
    return made


def sound_request(
    samples: NDArray[np.int16],
    prompt: tuple[int, ...],
    transcript: TranscriptParams | None = None,
    **fields: object,
) -> GenerationRequest:
    data = samples.tobytes()
    digest = blake2b(data, digest_size=DIGEST_BYTES).digest()
    request = GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt_ids=prompt,
        content=Content(media=(PlaceholderRange(digest, 0, MAX_TOKENS),)),
        media=(MediumFile(kind=MediaKind.AUDIO, data=data),),
        sampling=SamplingParams(temperature=0, transcript=transcript),
    )
    return replace(request, **fields)  # type: ignore[arg-type]


def started(limits: EngineLimits) -> InferenceEngine:
    return InferenceEngine(loaded(tiny_whisper()), tiny_tokenizer(), limits=limits)
