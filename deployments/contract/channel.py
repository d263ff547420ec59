"""The messages of an ingress and a replica on a channel: one stream for many sequences."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from deployments.contract.events import TokenEvent
from deployments.contract.outputs import LabelParams
from deployments.contract.requests import GenerationRequest

# Both ends of a channel with sequences send so often. A replica does so when it has no events.
HEARTBEAT_S = 5.0
HEARTBEAT = TokenEvent()  # what the stream of a single sequence sends as a sign of life
CHANNEL_IDLE_S = 1.0  # how long a channel without sequences stays open for the next one
# Tokens, log-probabilities and characters in one message: Serve's gRPC transport refuses 4 MiB.
MAX_MESSAGE_WEIGHT = 60_000
BYTES_PER_WEIGHT = 56  # of vectors and files
PIECE_BYTES = 1 << 20  # Files of more bytes come in pieces, before the sequence that has them.
PICKLE_PROTOCOL = pickle.HIGHEST_PROTOCOL


class Join(NamedTuple):
    """A sequence to run on a channel; `number` tells it apart from the others there.

    `log_id` is the HTTP request's id. `version` is of the card that made the ids of `request`.
    """

    number: int
    log_id: str
    version: str
    request: GenerationRequest


class FilePiece(NamedTuple):
    """Bytes of a file of a sequence that is to join. They follow those of the file's last piece."""

    number: int
    file: int  # its index in the request
    data: bytes


Burst = list[tuple[int, TokenEvent]]


class Leave(NamedTuple):
    """The end of a sequence. `is_complete`: its reader has all of the answer."""

    number: int
    is_complete: bool


def encode_update(
    joins: Sequence[Join], leaves: Sequence[Leave], pieces: Sequence[FilePiece] = ()
) -> bytes:
    """Returns one message of an ingress to a replica; an empty one is a heartbeat."""
    return pickle.dumps((joins, leaves, pieces), PICKLE_PROTOCOL)


def decode_update(words: bytes) -> tuple[list[Join], list[Leave], list[FilePiece]]:
    """Returns what `encode_update` was given."""
    joins, leaves, pieces = pickle.loads(words)
    return joins, leaves, pieces


def needs_pieces(request: GenerationRequest) -> bool:
    """Whether its files are more than a message should have."""
    return sum(len(file.data) for file in request.media) > PIECE_BYTES


def cut_files(join: Join) -> Iterator[FilePiece]:
    """Yields the pieces of all files, each of up to PIECE_BYTES, in their order."""
    for index, file in enumerate(join.request.media):
        for at in range(0, len(file.data), PIECE_BYTES):
            yield FilePiece(join.number, index, file.data[at : at + PIECE_BYTES])


def without_files(join: Join) -> Join:
    """Returns the join as it follows its pieces: without the bytes of its files."""
    media = tuple(replace(file, data=b"") for file in join.request.media)
    return join._replace(request=replace(join.request, media=media))


def with_files(join: Join, files: Mapping[int, bytearray]) -> Join:
    """`files` are joined pieces, by the indices of the files."""
    media = tuple(
        replace(file, data=bytes(files.get(index, b"")))
        for index, file in enumerate(join.request.media)
    )
    return join._replace(request=replace(join.request, media=media))


def decode_burst(burst: bytes) -> Burst:
    """Returns the events of a message of a replica, each with the number of its sequence."""
    events: Burst = pickle.loads(burst)
    return events


def count_fitting(weights: Iterable[int], pieces: Sequence[FilePiece] = ()) -> int:
    """How many of the first weights fit into one message that has these pieces; without any at
    least one, however heavy it is."""
    n, total = 0, sum(len(piece.data) for piece in pieces) // BYTES_PER_WEIGHT
    for weight in weights:
        total += weight
        if (n or pieces) and total > MAX_MESSAGE_WEIGHT:
            break
        n += 1
    return n


def request_weight(request: GenerationRequest) -> int:
    """Returns the weight of a request in a message, of which a token id has one."""
    tokens = len(request.prompt_ids) + len(request.produced_ids)
    sampling = request.sampling
    biased = len(sampling.logit_bias) + sum(map(len, sampling.bad_words))
    listed = len(request.stop_token_ids) + len(sampling.dry.breakers if sampling.dry else ())
    labels = len(request.output.token_ids) if isinstance(request.output, LabelParams) else 0
    texts = len(request.grammar) + len(request.content.salt)
    files = sum(len(file.data) for file in request.media) // BYTES_PER_WEIGHT
    return tokens + biased + listed + labels + texts + files


def event_weight(event: TokenEvent) -> int:
    """Returns the weight of an event in a message, of which a token id has one."""
    if event.vectors is not None:
        return len(event.vectors.data) // BYTES_PER_WEIGHT
    if event.logprobs is None:
        return len(event.token_ids)
    return sum(2 + len(token.top) for token in event.logprobs)
