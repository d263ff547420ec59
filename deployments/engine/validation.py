"""Refuses requests that no step could compute: one bad row would fail its whole batch."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from math import inf

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.requests import (
    DryParams,
    GenerationRequest,
    MirostatParams,
    SamplingParams,
    ThinkingBudget,
)
from deployments.engine.sampling.sampler import SAMPLERS
from kv.content import Content

MAX_SAMPLERS = 32
MAX_ADAPTERS = 16  # of one request
MAX_SEQUENCE_TOKENS = 128  # of a bad word, and of the start, end or break of a thought

Problems = Iterator[tuple[str, str]]  # a field's name, and an error message


def find_invalid(
    request: GenerationRequest,
    vocab_size: int,
    *,
    takes_adapters: bool = False,
    takes_media: bool = False,
    sound_bytes: int = 0,
) -> RequestError | None:
    """The error of the first invalid field of a request. None: all fields are valid.

    sound_bytes: the most of one sound, of a model that transcribes; 0 for others.
    """
    media = _invalid_media(request, takes_media)
    if sound_bytes:
        media = _invalid_sound(request, sound_bytes)
    problems = (
        _invalid_token_ids(request, vocab_size),
        _invalid_content(request.content, takes_adapters),
        media,
        invalid_sampling(request.sampling),
        _invalid_sequences(request),
    )
    for param, message in chain.from_iterable(problems):
        return RequestError(ErrorKind.INVALID_REQUEST, message, param)
    return None


def _invalid_token_ids(request: GenerationRequest, vocab_size: int) -> Problems:
    if not request.prompt_ids:
        yield "prompt", "the prompt is empty"
    if request.prompt_logprobs is not None and request.prompt_logprobs < 0:
        yield "prompt_logprobs", "prompt_logprobs must not be negative"
    sampling, thinking = request.sampling, request.thinking
    fields: tuple[tuple[str, Sequence[int]], ...] = (
        ("prompt", request.prompt_ids),
        ("produced_ids", request.produced_ids),
        ("stop_token_ids", request.stop_token_ids),
        ("logit_bias", [token_id for token_id, _ in sampling.logit_bias]),
        ("bad_words", [token_id for word in sampling.bad_words for token_id in word]),
        ("dry", sampling.dry.breakers if sampling.dry else ()),
        ("thinking", (*thinking.start_ids, *thinking.end_ids) if thinking else ()),
    )
    for param, ids in fields:
        if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
            yield param, f"token ids must be in 0..{vocab_size - 1}"


def _invalid_sequences(request: GenerationRequest) -> Problems:
    sampling = request.sampling
    if not all(1 <= len(word) <= MAX_SEQUENCE_TOKENS for word in sampling.bad_words):
        yield "bad_words", f"a bad word must have 1 to {MAX_SEQUENCE_TOKENS} tokens"
    if not set(sampling.samplers) <= SAMPLERS.keys():
        yield "samplers", f"samplers must be of {', '.join(SAMPLERS)}"
    if len(sampling.samplers) > MAX_SAMPLERS:
        yield "samplers", f"samplers must be no more than {MAX_SAMPLERS}"
    if request.thinking is not None:
        yield from _invalid_thinking(request.thinking)


def _invalid_thinking(thinking: ThinkingBudget) -> Problems:
    if not thinking.tokens >= 0:
        yield "thinking", "the tokens of a thinking budget must not be negative"
    if not 1 <= len(thinking.end_ids) <= MAX_SEQUENCE_TOKENS:
        yield "thinking", f"the end of a thought must have 1 to {MAX_SEQUENCE_TOKENS} tokens"
    if not all(1 <= len(ids) <= MAX_SEQUENCE_TOKENS for ids in thinking.break_ids):
        yield "thinking", f"what breaks a thought must have 1 to {MAX_SEQUENCE_TOKENS} tokens"
    if not (0 if thinking.open else 1) <= len(thinking.start_ids) <= MAX_SEQUENCE_TOKENS:
        yield "thinking", f"the start of a thought must have 1 to {MAX_SEQUENCE_TOKENS} tokens"


def _invalid_content(content: Content, takes_adapters: bool) -> Problems:
    if content.adapters and not takes_adapters:
        yield "adapters", "this model takes no adapters: max_loras is 0"
    if len(content.adapters) > MAX_ADAPTERS:
        yield "adapters", f"adapters must be no more than {MAX_ADAPTERS}"
    if not all(-inf < adapter.scale < inf for adapter in content.adapters):
        yield "adapters", "the scale of an adapter must be a finite number"


def _invalid_media(request: GenerationRequest, takes_media: bool) -> Problems:
    media, end = request.content.media, 0
    if media and not takes_media:
        yield "media", "this model reads text only"
    if len(media) != len(request.media):
        yield "media", f"{len(media)} media have positions and {len(request.media)} have files"
    for medium in media:
        if not end <= medium.first < medium.end <= len(request.prompt_ids):
            yield "media", "media must have positions of their own in the prompt, in its order"
        if medium.columns and (medium.end - medium.first) % medium.columns:
            yield "media", "the positions of a medium must be whole lines of it"
        end = medium.end


def _invalid_sound(request: GenerationRequest, sound_bytes: int) -> Problems:
    files = request.media
    if len(files) != 1 or len(request.content.media) != 1:
        yield "media", "this model transcribes sounds, and does nothing else"
    elif not 0 < len(files[0].data) <= sound_bytes or len(files[0].data) % 2:
        yield "media", f"a sound must have up to {sound_bytes} bytes, two for each sample"


def find_long_span(
    request: GenerationRequest, placeholder_ids: Collection[int], most: int
) -> RequestError | None:
    """The error of a medium with more than `most` placeholders. None: there is none."""
    for medium in request.content.media:
        n = sum(id in placeholder_ids for id in request.prompt_ids[medium.first : medium.end])
        if n > most:
            message = (
                f"an image of {n} tokens is computed in one step, which has room for {most}: "
                "max_batch_tokens has to be larger"
            )
            return RequestError(ErrorKind.INVALID_REQUEST, message, "media")
    return None


def invalid_sampling(sampling: SamplingParams) -> Problems:
    """The names of the fields that no request may have so, and why. Every comparison is false for
    a NaN, so that a NaN is always refused."""
    yield from _out_of_range(sampling)
    if not 0 < sampling.repetition_penalty < inf:
        yield "repetition_penalty", "repetition_penalty must be above 0"
    if sampling.penalty_last_n is not None and not sampling.penalty_last_n >= -1:
        yield "penalty_last_n", "penalty_last_n must be -1 or more"
    if not all(-inf <= bias < inf for _, bias in sampling.logit_bias):
        yield "logit_bias", "a bias must be a number below infinity"
    if sampling.logprobs is not None and sampling.logprobs < 0:
        yield "logprobs", "logprobs must not be negative"
    if sampling.dry is not None:
        yield from (("dry", message) for message in _invalid_dry(sampling.dry))
    if sampling.mirostat is not None:
        yield from (("mirostat", message) for message in _invalid_mirostat(sampling.mirostat))


def _out_of_range(sampling: SamplingParams) -> Problems:
    fractions = ("top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold")
    non_negative = ("temperature", "dynatemp_range", "dynatemp_exponent", "top_n_sigma", "min_keep")
    for name in fractions:
        if not 0 <= getattr(sampling, name) <= 1:
            yield name, f"{name} must be in 0..1"
    for name in non_negative:
        if not 0 <= getattr(sampling, name) < inf:
            yield name, f"{name} must not be negative"
    for name in ("presence_penalty", "frequency_penalty"):
        if not -inf < getattr(sampling, name) < inf:
            yield name, f"{name} must be a finite number"


def _invalid_dry(dry: DryParams) -> Iterator[str]:
    if not 0 <= dry.multiplier < inf:
        yield "the multiplier of dry must not be negative"
    if not 1 <= dry.base < inf:
        yield "the base of dry must be 1 or more"
    if not dry.allowed_length >= 0:
        yield "the allowed length of dry must not be negative"
    if not dry.last_n >= -1:
        yield "the last_n of dry must be -1 or more"


def _invalid_mirostat(mirostat: MirostatParams) -> Iterator[str]:
    if mirostat.version not in (1, 2):
        yield "the version of mirostat must be 1 or 2"
    if not 0 <= mirostat.tau < inf:
        yield "the tau of mirostat must not be negative"
    if not 0 <= mirostat.eta < inf:
        yield "the eta of mirostat must not be negative"
    if mirostat.mu is not None and not -inf < mirostat.mu < inf:
        yield "the mu of mirostat must be a finite number"
