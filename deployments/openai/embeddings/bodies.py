"""The bodies that carry embeddings, in the form of each protocol."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Pooling, Vectors
from deployments.ingress.http.sse import encode, encode_text
from deployments.ingress.pooling.vectors import base64_of, json_of_row, json_of_rows
from deployments.openai.embeddings.schema import (
    CohereEmbedRequest,
    EmbeddingFields,
    EmbedRequest,
    NativeRequest,
    PoolingRequest,
)
from deployments.openai.ranking.activations import probabilities

EMBEDDING = b'{"object":"embedding","index":%d,"embedding":%b}'
POOLED = b'{"object":"pooling","index":%d,"data":%b}'
NATIVE = b'{"index":%d,"embedding":%b}'
LIST = (
    b'{"id":%b,"object":"list","created":%d,"model":%b,"data":%b,'
    b'"usage":{"prompt_tokens":%d,"total_tokens":%d}}'
)
COHERE = b'{"id":%b,"response_type":"embeddings_by_type","embeddings":{%b},"texts":%b,"meta":%b}'


class Answered(NamedTuple):
    """The parts of an answer; `vectors` are in the order of the texts."""

    id: str
    card: ModelCard
    vectors: Sequence[Vectors]
    n_tokens: int


def format_embeddings(request: EmbeddingFields, answered: Answered) -> bytes:
    match request:
        case PoolingRequest():
            return _list(answered, POOLED, _pooled(request, answered.card))
        case NativeRequest():
            return _each(answered, NATIVE, json_of_rows)
        case EmbedRequest():
            return b"[%b]" % b",".join(map(_numbers, answered.vectors))
        case CohereEmbedRequest():
            return _cohere(request, answered)
    return _list(answered, EMBEDDING, _base64 if request.as_base64 else _numbers)


def _list(answered: Answered, form: bytes, write: Callable[[Vectors], bytes]) -> bytes:
    names = encode_text(answered.id), int(time.time()), encode_text(answered.card.answers_as)
    data = _each(answered, form, write)
    return LIST % (*names, data, answered.n_tokens, answered.n_tokens)


def _each(answered: Answered, form: bytes, write: Callable[[Vectors], bytes]) -> bytes:
    items = (form % (index, write(output)) for index, output in enumerate(answered.vectors))
    return b"[%b]" % b",".join(items)


def _numbers(vectors: Vectors) -> bytes:
    return json_of_row(vectors.data)


def _base64(vectors: Vectors) -> bytes:
    return base64_of(vectors.data)


def _pooled(request: PoolingRequest, card: ModelCard) -> Callable[[Vectors], bytes]:
    """Returns the function that writes the answer of a text.

    It writes a list of numbers, a list of them for each token, or the base64 of them all.
    """
    if request.task == "classify":
        return lambda output: encode(probabilities(output.data, card, request.use_activation))
    if request.as_base64:
        return _base64
    is_of_tokens = (request.named_pooling or card.answers.pooling) is Pooling.TOKEN
    return json_of_rows if is_of_tokens else _numbers


def _cohere(request: CohereEmbedRequest, answered: Answered) -> bytes:
    writers: dict[str, Callable[[bytes], bytes]] = {"float": json_of_row, "base64": base64_of}
    lists = [
        b"%b:[%b]"
        % (encode_text(kind), b",".join(writers[kind](output.data) for output in answered.vectors))
        for kind in request.types
    ]
    version, billed = {"version": "2"}, {"input_tokens": answered.n_tokens}
    meta = encode({"api_version": version, "billed_units": billed})
    names = encode_text(answered.id), b",".join(lists), encode(request.given)
    return COHERE % (*names, meta)
