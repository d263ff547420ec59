"""Has the vectors of media made before a step needs them.

Files are decoded on threads. The tower runs on the engine's thread between steps, for as many ids
as a step may have, and for one medium at least. A task waits before the first medium whose vectors
are not there, and others go on. All tasks together have vectors for as many tokens as two steps
have, and the first task has what it needs: more would be memory that nothing bounds.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from deployments.contract.errors import ErrorKind
from deployments.contract.events import TokenEvent
from deployments.contract.media_rules import MediaKind
from deployments.contract.requests import MediumFile
from deployments.engine.media.encoder import STEPS_AHEAD, MediaEncoder
from deployments.engine.media.encoder_cache import EncoderCache
from deployments.engine.media.families.family import Bidirectional, Inputs
from deployments.engine.out_of_memory import is_out_of_memory, release_memory
from deployments.engine.scheduler.events import FAILED, OUT_OF_MEMORY
from deployments.engine.tasks.media_vectors import MediaVectors, unbroken_spans
from deployments.engine.tasks.task import Task
from deployments.media.images import UnreadableError
from kv.content import PlaceholderRange

log = logging.getLogger(__name__)

THREADS = 2
NOUNS = {MediaKind.IMAGE: "an image", MediaKind.AUDIO: "a sound"}


class _MediumError(Exception):
    """A task can't go on; `event` says why."""

    def __init__(self, event: TokenEvent) -> None:
        self.event = event


class MediaStage:
    """`n_encoded` counts media, each as often as the tower saw it, and `n_hits` those that a task
    found in the cache."""

    def __init__(
        self,
        encoder: MediaEncoder,
        wake: Callable[[], None],
        max_ids: int,
        cache_bytes: int,
    ) -> None:
        """`wake` is called from any thread when a file was decoded. `max_ids` are encoded between
        two steps."""
        self._encoder = encoder
        self._wake = wake
        self._max_ids = max_ids
        self._cache = EncoderCache(cache_bytes)
        self._decoding: dict[bytes, Future[Sequence[Inputs]]] = {}
        self._parts: dict[bytes, list[Tensor]] = {}  # vectors of media that are not whole yet
        self._wanted: set[bytes] = set()
        self._pool = ThreadPoolExecutor(
            THREADS, "media", initializer=lambda: torch.set_num_threads(1)
        )
        self._in_use: dict[bytes, int] = {}  # vectors that running tasks have, by their media
        self._is_entitled = True
        self._n_left = 0
        self.n_encoded = self.n_hits = 0
        self.is_behind = False  # whether it has decoded media left for the next step

    def advance(self, running: Iterable[Task]) -> Iterator[tuple[Task, TokenEvent]]:
        """Gives each task the vectors of its next tokens, as far as they can be had now. Tells
        of tasks whose media can't be read."""
        self._n_left, self.is_behind = self._max_ids, False
        self._wanted = set()
        self._in_use = {
            own.medium.digest: len(own.vectors) for task in running for own in task.media_vectors
        }
        for nth, task in enumerate([task for task in running if _has_media_left(task)]):
            # The first one gets what it needs in any case, so that some task goes on.
            self._is_entitled = nth == 0
            try:
                self._advance(task)
            except _MediumError as error:
                yield task, error.event
        self._forget_unwanted()

    @staticmethod
    def take_back(task: Task) -> None:
        """The task begins anew, and needs its vectors again."""
        if task.sound is not None:  # its layers cross-attend to it, and need none
            return
        media = task.request.content.media
        task.media_vectors = ()
        task.n_readable = media[0].first if media else sys.maxsize

    def counts(self) -> dict[str, int]:
        """Returns the fields of `EngineStats` that count media."""
        return {"media_encoded": self.n_encoded, "media_cache_hits": self.n_hits}

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._encoder.close()

    def _advance(self, task: Task) -> None:
        found: list[MediaVectors] = []
        task.n_readable = sys.maxsize
        for medium in task.request.content.media:
            if medium.end <= task.n_computed:
                continue
            task.n_readable = medium.first
            if medium.first > task.n_computed + STEPS_AHEAD * self._max_ids:
                break
            if (vectors := self._vectors(task, medium)) is None:
                break
            found.append(vectors)
            task.n_readable = sys.maxsize
        task.media_vectors = tuple(found)

    def _vectors(self, task: Task, medium: PlaceholderRange) -> MediaVectors | None:
        for known in task.media_vectors:
            if known.medium == medium:
                return known
        has_room = sum(self._in_use.values()) < STEPS_AHEAD * self._max_ids
        if not (has_room or self._is_entitled or medium.digest in self._in_use):
            return None
        if (vectors := self._cache.get(medium.digest)) is not None:
            self.n_hits += 1
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
            self.is_behind = True
            return None
        self._forget(digest)
        self.n_encoded += 1
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


def _has_media_left(task: Task) -> bool:
    return task.n_readable < sys.maxsize or bool(task.media_vectors)
