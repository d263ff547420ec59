"""Refuses what could not be honoured: a bad row would fail the whole step that it shares."""

from collections.abc import Iterator, Sequence
from math import inf

from deployments.wire import ErrorKind, GenerationRequest, RequestError, SamplingParams


def find_invalid(request: GenerationRequest, vocab_size: int) -> RequestError | None:
    """The first field that no model of this vocabulary could serve."""
    for param, message in (*_wrong_ids(request, vocab_size), *_wrong_numbers(request.sampling)):
        return RequestError(ErrorKind.INVALID_REQUEST, message, param)
    return None


def _wrong_ids(request: GenerationRequest, vocab_size: int) -> Iterator[tuple[str, str]]:
    if not request.prompt_ids:
        yield "prompt", "the prompt is empty"
    fields: tuple[tuple[str, Sequence[int]], ...] = (
        ("prompt", request.prompt_ids),
        ("produced_ids", request.produced_ids),
        ("stop_token_ids", request.stop_token_ids),
        ("logit_bias", [token_id for token_id, _ in request.sampling.logit_bias]),
    )
    for param, ids in fields:
        if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
            yield param, f"token ids must be in 0..{vocab_size - 1}"


def _wrong_numbers(sampling: SamplingParams) -> Iterator[tuple[str, str]]:
    """Comparisons are written so that they fail for a NaN."""
    if not 0 <= sampling.temperature < inf:
        yield "temperature", "temperature must not be negative"
    if not 0 <= sampling.top_p <= 1:
        yield "top_p", "top_p must be in 0..1"
    if not 0 <= sampling.min_p <= 1:
        yield "min_p", "min_p must be in 0..1"
    if not 0 < sampling.repetition_penalty < inf:
        yield "repetition_penalty", "repetition_penalty must be above 0"
    if not -inf < sampling.presence_penalty < inf:
        yield "presence_penalty", "presence_penalty must be a finite number"
    if not -inf < sampling.frequency_penalty < inf:
        yield "frequency_penalty", "frequency_penalty must be a finite number"
    if not all(-inf <= bias < inf for _, bias in sampling.logit_bias):
        yield "logit_bias", "a bias must be a number below infinity"
    if sampling.logprobs is not None and sampling.logprobs < 0:
        yield "logprobs", "logprobs must not be negative"
