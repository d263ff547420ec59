"""Refuses pooling requests that their model can't answer, or not so."""

from collections.abc import Iterator

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.outputs import (
    VECTOR_ITEM_BYTES,
    AlignParams,
    LabelParams,
    ModelTask,
    OutputParams,
    Pooling,
    PoolParams,
)
from deployments.contract.requests import GenerationRequest
from deployments.engine.outputs.model_outputs import ModelOutputs
from deployments.engine.tasks.pooled import Pooled

MAX_NORM = 64  # a higher power is the largest number, but for rounding
MAX_LABELS = 4096  # tokens whose log-probabilities one request asks for
MAX_ANSWER_BYTES = 32 << 20  # of the vectors of one pooling request

Problems = Iterator[RequestError]


def find_invalid_output(
    request: GenerationRequest, outputs: ModelOutputs, max_tokens: int
) -> RequestError | None:
    """The first error. None: the model can answer. `max_tokens` are of the longest prompt."""
    if request.output is None:
        if outputs.kinds.can_generate:
            return None
        return _unsupported(f"this model is there to {outputs.kinds.task}, and generates no text")
    problems = _problems(request, request.output, outputs, max_tokens)
    return next(problems, None)


def pooled_of(request: GenerationRequest, outputs: ModelOutputs) -> Pooled | None:
    """Returns the `Pooled` of a valid request; None: its answer is tokens."""
    output = request.output
    if output is None:
        return None
    if not isinstance(output, PoolParams):
        return Pooled(None, aligns=isinstance(output, AlignParams))
    if output.use_head:
        return Pooled(None if outputs.head is None else outputs.head_pooling)
    return Pooled(output.pooling or outputs.kinds.pooling)


def _problems(
    request: GenerationRequest, output: OutputParams, outputs: ModelOutputs, max_tokens: int
) -> Problems:
    n = len(request.prompt_ids)
    max_tokens = min(max_tokens, outputs.kinds.max_input_tokens or max_tokens)
    if n > max_tokens:
        message = f"the text has {n} tokens; this model takes {max_tokens} at most"
        yield RequestError(ErrorKind.CONTEXT_LENGTH, message)
    if request.max_tokens != 0 or request.produced_ids or request.grammar:
        yield _invalid("max_tokens", "a pooling request generates no tokens")
    if request.prompt_logprobs is not None:
        yield _invalid("prompt_logprobs", "a pooling request has no log-probabilities")
    if not 0 <= request.second_at < n:
        yield _invalid("second_at", "the second text must begin within the prompt")
    if request.second_at and not outputs.kinds.takes_pairs:
        yield _invalid("second_at", "this model does not tell two texts apart by types of tokens")
    if isinstance(output, LabelParams):
        yield from _invalid_labels(output, outputs)
    elif isinstance(output, AlignParams):
        yield from _invalid_transcript(output, outputs, n)
    elif output.use_head:
        yield from _invalid_head(output, outputs)
    else:
        yield from _invalid_pooling(output, outputs, n)


def _invalid_labels(output: LabelParams, outputs: ModelOutputs) -> Problems:
    if not outputs.kinds.can_generate:
        yield _unsupported("this model has no probabilities of tokens")
    if not 1 <= len(output.token_ids) <= MAX_LABELS:
        yield _invalid("token_ids", f"labels must be 1 to {MAX_LABELS} tokens")


def _invalid_transcript(output: AlignParams, outputs: ModelOutputs, n_tokens: int) -> Problems:
    if not outputs.can_align:
        yield _unsupported("this model does not tell when tokens are heard")
    if not 0 <= output.n_before < n_tokens:
        yield _invalid("n_before", "the transcript must be the end of the prompt")


def _invalid_head(output: PoolParams, outputs: ModelOutputs) -> Problems:
    if not outputs.kinds.labels:
        yield _unsupported("this model has no labels to score")
    if output != PoolParams(use_head=True):
        yield _invalid("pooling", "the logits of labels are neither pooled nor normalised")


def _invalid_pooling(output: PoolParams, outputs: ModelOutputs, n_tokens: int) -> Problems:
    kinds = outputs.kinds
    if not kinds.can_embed or (kinds.labels and kinds.task is not ModelTask.EMBED):
        yield _unsupported("this model has no embeddings")
        return
    pooling = output.pooling or kinds.pooling
    if pooling is None:
        yield _invalid("pooling", "the model's files do not say how it pools: name a pooling")
    size = kinds.embedding_size
    if output.dimensions is not None and not 1 <= output.dimensions <= size:
        yield _invalid("dimensions", f"dimensions must be in 1..{size}")
    if output.normalize is not None and not -1 <= output.normalize <= MAX_NORM:
        yield _invalid("normalize", f"normalize must be in -1..{MAX_NORM}")
    n_bytes = n_tokens * size * VECTOR_ITEM_BYTES
    if pooling is Pooling.TOKEN and n_bytes > MAX_ANSWER_BYTES:
        most = MAX_ANSWER_BYTES // (size * VECTOR_ITEM_BYTES)
        message = f"the text has {n_tokens} tokens; vectors of {most} at most are given at once"
        yield RequestError(ErrorKind.CONTEXT_LENGTH, message)


def _invalid(param: str, message: str) -> RequestError:
    return RequestError(ErrorKind.INVALID_REQUEST, message, param)


def _unsupported(message: str) -> RequestError:
    return RequestError(ErrorKind.NOT_SUPPORTED, message)
