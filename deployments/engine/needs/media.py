"""The need of media: vectors of images and sounds are made before a step needs them.

Files are decoded on threads. The tower runs on the engine's thread between steps, for as many ids
as a step may have, and for one medium at least. A task waits before the first medium whose vectors
are not there, and others go on. All tasks together have vectors for as many tokens as two steps
have, and the first task has what it needs: more would be memory that nothing bounds.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from deployments.contract.errors import ErrorKind
from deployments.contract.events import TokenEvent
from deployments.contract.media_rules import MediaKind
from deployments.contract.requests import MediumFile
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.media.encoder import STEPS_AHEAD, EncoderCache, MediaEncoder
from deployments.engine.media.encoders import Bidirectional, Inputs
from deployments.engine.needs.grid_positions import GridPositions, grid_positions
from deployments.engine.needs.media_vectors import MediaVectors, unbroken_spans
from deployments.engine.needs.need import Failure, RowNeed
from deployments.engine.out_of_memory import is_out_of_memory, release_memory
from deployments.engine.tasks.batch import Ahead, Batch, start_of
from deployments.engine.tasks.endings import FAILED, OUT_OF_MEMORY
from deployments.engine.tasks.task import Task
from deployments.media.images import UnreadableError
from kv.arrays import IntArray
from kv.content import PlaceholderRange

log = logging.getLogger(__name__)

THREADS = 2
NOUNS = {MediaKind.IMAGE: "an image", MediaKind.AUDIO: "a sound"}


class _MediumError(Exception):
    """A task can't go on; `event` says why."""

    def __init__(self, event: TokenEvent) -> None:
        self.event = event


@dataclass(slots=True)
class _TaskMedia:
    """The media of one running task.

    n_readable: tokens before the first medium whose vectors are not at hand; all, where no medium
        is left to compute.
    vectors: of the next media.
    grid: where it has images that are positioned by line and column.
    """

    n_readable: int
    grid: GridPositions | None
    vectors: Sequence[MediaVectors] = ()

    @property
    def has_any_left(self) -> bool:
        return self.n_readable < sys.maxsize or bool(self.vectors)


class MediaNeed(RowNeed):
    def __init__(self, encoder: MediaEncoder, max_ids: int, cache_bytes: int) -> None:
        """`max_ids` are encoded between two steps."""
        self._encoder = encoder
        self._wake: Callable[[], None] = lambda: None
        self._max_ids = max_ids
        self._cache = EncoderCache(cache_bytes)
        self._tasks: dict[Task, _TaskMedia] = {}  # those that run and have media
        self._decoding: dict[bytes, Future[Sequence[Inputs]]] = {}
        self._parts: dict[bytes, list[Tensor]] = {}  # vectors of media that are not whole yet
        self._wanted: set[bytes] = set()
        self._pool = ThreadPoolExecutor(
            THREADS, "media", initializer=lambda: torch.set_num_threads(1)
        )
        self._in_use: dict[bytes, int] = {}  # vectors that running tasks have, by their media
        self._is_entitled = True
        self._n_left = 0
        self._is_behind = False
        # Media, each as often as the tower saw it, and those that a task found in the cache.
        self._n_encoded = self._n_hits = 0

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def join(self, task: Task, running: Iterable[Task]) -> None:
        if media := task.request.content.media:
            self._tasks[task] = _TaskMedia(media[0].first, grid_positions(media))

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        """A task that was preempted begins anew, and needs its vectors again."""
        self._tasks.pop(task, None)

    def advance(self, running: Iterable[Task]) -> Iterator[Failure]:
        """Gives each task the vectors of its next tokens, as far as they can be had now. Tells
        of tasks whose media can't be read."""
        self._n_left, self._is_behind = self._max_ids, False
        self._wanted = set()
        self._in_use = {
            medium.medium.digest: len(medium.vectors)
            for own in self._tasks.values()
            for medium in own.vectors
        }
        paired = [(task, self._tasks[task]) for task in running if task in self._tasks]
        for nth, (task, own) in enumerate([pair for pair in paired if pair[1].has_any_left]):
            # The first one gets what it needs in any case, so that some task goes on.
            self._is_entitled = nth == 0
            try:
                self._advance(task, own)
            except _MediumError as error:
                yield task, error.event
        self._forget_unwanted()

    @property
    def is_behind(self) -> bool:
        """Whether decoded media are left for the next step."""
        return self._is_behind

    def choose(self, tasks: Sequence[Task], ahead: Ahead) -> Sequence[Task]:
        def is_ready(task: Task) -> bool:
            own = self._tasks.get(task)
            return own is None or start_of(task, ahead) < own.n_readable

        return [task for task in tasks if is_ready(task)] if self._tasks else tasks

    def most(self, task: Task, start: int, n: int) -> int:
        own = self._tasks.get(task)
        return n if own is None else min(n, own.n_readable - start)

    def uncut(self, task: Task, start: int, n: int, most: int) -> int:
        """No span is cut that attends both ways. One that is next is computed whole where that is
        no more than `most` tokens."""
        own = self._tasks.get(task)
        for medium in () if own is None else own.vectors:
            for begin, end in medium.spans:
                if begin < start + n < end:
                    if begin > start:
                        return begin - start
                    return end - start if end - start <= most else 0
        return n

    def inputs(self, batch: Batch, step: StepInputs) -> StepInputs:
        """Adds vectors in the place of placeholders, and positions by line and column."""
        owns = [self._tasks.get(task) for task in batch.tasks]
        if not any(owns):
            return step
        if any(own is not None and own.grid is not None for own in owns):
            step = replace(step, rotary_positions=_rotary_positions(batch, step.positions, owns))
        indices, vectors = _vectors_of(batch, step, owns)
        if not indices:
            return step
        return replace(
            step,
            vectors_at=np.concatenate(indices),
            vectors=torch.cat(vectors),
            spans=_bidirectional_spans(batch, owns),
        )

    def stats(self) -> Mapping[str, int]:
        return {"media_encoded": self._n_encoded, "media_cache_hits": self._n_hits}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._encoder.close()

    def _advance(self, task: Task, own: _TaskMedia) -> None:
        found: list[MediaVectors] = []
        own.n_readable = sys.maxsize
        for medium in task.request.content.media:
            if medium.end <= task.n_computed:
                continue
            own.n_readable = medium.first
            if medium.first > task.n_computed + STEPS_AHEAD * self._max_ids:
                break
            if (vectors := self._vectors(task, own, medium)) is None:
                break
            found.append(vectors)
            own.n_readable = sys.maxsize
        own.vectors = tuple(found)

    def _vectors(
        self, task: Task, own: _TaskMedia, medium: PlaceholderRange
    ) -> MediaVectors | None:
        for known in own.vectors:
            if known.medium == medium:
                return known
        has_room = sum(self._in_use.values()) < STEPS_AHEAD * self._max_ids
        if not (has_room or self._is_entitled or medium.digest in self._in_use):
            return None
        if (vectors := self._cache.get(medium.digest)) is not None:
            self._n_hits += 1
        else:
            vectors = self._encoded(task, medium.digest)
        if vectors is None:
            return None
        self._in_use[medium.digest] = len(vectors)
        return self._media_vectors(task, medium, vectors)

    def _media_vectors(self, task: Task, medium: PlaceholderRange, vectors: Tensor) -> MediaVectors:
        ids = task.tokens[medium.first : medium.end]
        positions = np.isin(ids, [*self._encoder.placeholder_ids]).nonzero()[0] + medium.first
        if len(positions) != len(vectors):
            log.error("a medium has %d vectors for %d placeholders", len(vectors), len(positions))
            raise _MediumError(FAILED)
        where = self._encoder.bidirectional
        spans = () if where is Bidirectional.NOWHERE else unbroken_spans(positions)
        in_windows = where is Bidirectional.IN_WINDOWS
        return MediaVectors(medium, positions, vectors, spans, in_windows)

    def _encoded(self, task: Task, digest: bytes) -> Tensor | None:
        """Returns the vectors of a medium. None: they will be there later."""
        self._wanted.add(digest)
        decoding = self._decoding.get(digest)
        if decoding is None:
            decoding = self._decoding[digest] = self._decode(task, digest)
        if not decoding.done():
            return None
        parts = self._parts.setdefault(digest, [])
        try:
            vectors = self._encode(decoding, parts, _file(task, digest).kind)
        except _MediumError:
            self._forget(digest)
            raise
        if vectors is None:
            self._is_behind = True
            return None
        self._forget(digest)
        self._n_encoded += 1
        self._cache.put(digest, vectors)
        return vectors

    def _decode(self, task: Task, digest: bytes) -> "Future[Sequence[Inputs]]":
        future = self._pool.submit(self._encoder.prepare, _file(task, digest))
        future.add_done_callback(lambda _: self._wake())
        return future

    def _encode(
        self, decoding: "Future[Sequence[Inputs]]", made: list[Tensor], kind: MediaKind
    ) -> Tensor | None:
        """Adds vectors of further parts to those that are made. Returns them once all are."""
        try:
            parts = decoding.result()
            while len(made) < len(parts) and self._n_left > 0:
                made.append(self._encoder.encode(parts[len(made)]))
                self._n_left -= len(made[-1])
            if len(made) < len(parts):
                return None
            return made[0] if len(made) == 1 else torch.cat(made)
        except UnreadableError as error:
            message = f"{NOUNS[kind]} {error}"
            raise _MediumError(TokenEvent.failed(message, ErrorKind.INVALID_REQUEST)) from error
        except Exception as error:
            log.error("a medium could not be encoded", exc_info=error)
            is_memory = is_out_of_memory(error)
            failure = OUT_OF_MEMORY if is_memory else FAILED
        if is_memory:  # the error is gone, and with it the tensors that it held
            release_memory()
        raise _MediumError(failure)

    def _forget_unwanted(self) -> None:
        """Forgets what was decoded for tasks that have ended."""
        for digest in self._decoding.keys() - self._wanted:
            self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        self._decoding.pop(digest).cancel()
        self._parts.pop(digest, None)


def _file(task: Task, digest: bytes) -> MediumFile:
    digests = [medium.digest for medium in task.request.content.media]
    return task.request.media[digests.index(digest)]


def _bidirectional_spans(batch: Batch, owns: Sequence[_TaskMedia | None]) -> IntArray:
    """Returns the spans of the batch, as `StepInputs.spans` has them."""
    columns = zip(owns, batch.starts, batch.new_len, strict=True)
    spans = [
        (row, max(begin - start, 0), end - start, medium.in_windows)
        for row, (own, start, n) in enumerate(columns)
        for medium in (() if own is None else own.vectors)
        for begin, end in medium.spans
        if start < end <= start + n
    ]
    return np.array(spans, dtype=np.int64).reshape(-1, 4)


def _vectors_of(
    batch: Batch, step: StepInputs, owns: Sequence[_TaskMedia | None]
) -> tuple[list[IntArray], list[Tensor]]:
    """Returns where tokens of media are in the flat batch, and their vectors, medium by medium."""
    indices, vectors = [], []
    offsets = step.total_len - step.new_len.cumsum()
    columns = zip(owns, batch.starts, batch.new_len, offsets, strict=True)
    for own, first, n, offset in columns:
        for medium in () if own is None else own.vectors:
            positions, of_positions = medium.within(first, first + n)
            if len(positions):
                indices.append(positions - offset)
                vectors.append(of_positions)
    return indices, vectors


def _rotary_positions(
    batch: Batch, positions: IntArray, owns: Sequence[_TaskMedia | None]
) -> IntArray:
    """Returns what the rotary embedding goes by, for `positions` [tokens] of tokens in their rows.
    [3, tokens], or [tokens] where all stand behind the images of their rows."""
    grids = [None if own is None else own.grid for own in owns]
    shifts = [0 if grid is None else grid.shift for grid in grids]
    rotary: IntArray = positions + np.repeat(shifts, batch.new_len)
    if all(
        grid is None or start >= grid.end for grid, start in zip(grids, batch.starts, strict=True)
    ):
        return rotary
    rotary, begin = np.tile(rotary, (3, 1)), 0
    for grid, start, n in zip(grids, batch.starts, batch.new_len, strict=True):
        if grid is not None:
            rotary[:, begin : begin + n] = grid.within(start, start + n)
        begin += n
    return rotary
