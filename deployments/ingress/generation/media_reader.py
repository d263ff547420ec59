"""Reads the media of requests: from base64, from URLs, from files; then has them decoded.

What a request says itself is checked before anything is fetched, and nothing is fetched or decoded
for a model that can't use it. Clients take turns, and what one sends is decoded apart from others.
"""

import asyncio
import sys
from base64 import b64decode
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar

from deployments.contract.errors import refused
from deployments.contract.media_rules import MediaKind
from deployments.contract.model_card import ModelCard, media_kinds
from deployments.ingress.off_loop import Turns
from deployments.media.decoder_process import DecoderProcess, DecodingError, Job
from deployments.media.fetch import Fetcher, LocalFileError, MediaFetchError, read_local
from deployments.media.file_types import FileKind, format_problem, kind_of
from deployments.media.medium import DecodedPiece, WantedForm
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.media.settings import MediaSettings
from deployments.media.source import Source

N_FETCHES, N_DECODERS = 4, 2  # at once
MAX_HEAD = 256  # of a data: URL, before its base64
IDLE_S = 60.0  # until decoders without work end
NEEDED = {FileKind.IMAGE: MediaKind.IMAGE, FileKind.AUDIO: MediaKind.AUDIO}
READ = {MediaKind.IMAGE: "images", MediaKind.AUDIO: "sounds"}
PARTS = {MediaKind.IMAGE: "an image", MediaKind.AUDIO: "a sound"}
Reserve = Callable[[int], None]
ValueT = TypeVar("ValueT")


@dataclass(slots=True, eq=False)
class MediaReader:
    """Belongs to one event loop."""

    settings: MediaSettings
    fetcher: Fetcher = field(init=False)
    _fetches: Turns = field(default_factory=lambda: Turns(N_FETCHES))
    _decoding: Turns = field(default_factory=lambda: Turns(N_DECODERS))
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(
            N_FETCHES + N_DECODERS, thread_name_prefix="media"
        )
    )
    _idle: list[DecoderProcess] = field(default_factory=list)
    _n_jobs: int = 0

    def __post_init__(self) -> None:
        settings = self.settings
        self.fetcher = Fetcher(settings.hosts, settings.fetch_timeout_s, settings.max_bytes)

    async def read(
        self, sources: Sequence[Source], card: ModelCard, client: str, reserve: Reserve
    ) -> PromptMedia:
        """`reserve` takes bytes of the budget before they are kept. Raises Refused."""
        if not sources:
            return NO_MEDIA
        unseen = [source for source in sources if _is_described(source, card)]
        sources = [source for source in sources if not _is_described(source, card)]
        self._check(sources, card)
        each = dict.fromkeys(sources)
        files = [await self._file(source, client, reserve) for source in each]
        pieces = [
            await self._decoded(source, data, card, client, reserve)
            for source, data in zip(each, files, strict=True)
        ]
        read = dict(zip(each, pieces, strict=True))
        self._check_number(sum(_n_media(read[source]) for source in sources), sources)
        described = {
            source: [_description(source.kind, card)]
            for source in unseen
            if source.kind is not None
        }
        return PromptMedia(read | described, [source.path for source in unseen])

    async def read_speech(
        self, data: bytes, path: str, rate: int, client: str, reserve: Reserve
    ) -> bytes:
        """The samples of a sound: 16 bits, mono, little endian. `path` is the field that errors
        name. Raises Refused.
        """
        source = Source(kind=FileKind.AUDIO, path=path)
        if len(data) > self.settings.max_bytes:
            self._refuse_large(source)
        if problem := format_problem(data, FileKind.AUDIO):
            _refuse(source, problem)
        job = Job(kind=FileKind.AUDIO, wanted=WantedForm.SPEECH, rate=rate)
        async with self._decoding.turn(client):
            [piece] = await self._run(partial(self._decode, source, job, data))
        assert piece.medium is not None
        reserve(len(piece.medium.data))
        return piece.medium.data

    def _check(self, sources: Sequence[Source], card: ModelCard) -> None:
        """All that the request says itself."""
        self._check_number(len(sources), sources)
        for source in sources:
            if source.is_inline:
                if _n_bytes(source) > self.settings.max_bytes + len(source.url[:MAX_HEAD]):
                    self._refuse_large(source)
            elif source.file_path is None:
                try:
                    self.fetcher.check(source.url)
                except MediaFetchError as error:
                    _refuse(source, str(error))
            elif self.settings.folder is None:
                _refuse(source, "is a file's URL, and this server has no media folder")
        for source in sources:
            check_can_read(source, source.kind, card)

    def _check_number(self, n_media: int, sources: Sequence[Source]) -> None:
        most = self.settings.max_media
        if n_media > most:
            path = sources[min(most, len(sources) - 1)].path
            raise refused(
                f"`{path}`: the request has {n_media} images, sounds and pages of documents, and "
                f"at most {most} are allowed",
                path,
            )

    async def _file(self, source: Source, client: str, reserve: Reserve) -> bytes:
        if source.file:
            data = source.file
        elif source.is_inline:
            reserve(_n_bytes(source))
            data = await asyncio.to_thread(_from_base64, source)
        else:
            async with self._fetches.turn(client):
                data = await self._run(partial(self._fetch, source))
            reserve(len(data))
        if len(data) > self.settings.max_bytes:
            self._refuse_large(source)
        if problem := format_problem(data, source.kind):
            _refuse(source, problem)
        return data

    def _fetch(self, source: Source) -> bytes:
        path, folder = source.file_path, self.settings.folder
        try:
            if path is not None and folder is not None:
                return read_local(folder, path, self.settings.max_bytes)
            return self.fetcher.fetch(source.url)
        except (MediaFetchError, LocalFileError) as error:
            _refuse(source, str(error))

    async def _decoded(
        self, source: Source, data: bytes, card: ModelCard, client: str, reserve: Reserve
    ) -> list[DecodedPiece]:
        kind = source.kind or kind_of(data)
        assert kind is not None
        if not _can_read(kind, card) and _is_told(source, card):
            return [_description(kind, card)]
        check_can_read(source, kind, card)
        job = Job(
            kind=kind,
            is_low_detail=source.is_low_detail,
            with_images=MediaKind.IMAGE in media_kinds(card),
        )
        async with self._decoding.turn(client):
            pieces = await self._run(partial(self._decode, source, job, data))
        media = [piece.medium for piece in pieces if piece.medium is not None]
        reserve(sum(len(medium.data) for medium in media if medium.data != data))
        reserve(sum(sys.getsizeof(piece.text) for piece in pieces if piece.text))
        if kind is FileKind.DOCUMENT and not any(piece.text or piece.medium for piece in pieces):
            if _is_told(source, card):
                return [DecodedPiece("[Here is a document without text.]", None)]
            _refuse(source, f"has no text, and the model {card.name!r} reads only text")
        return pieces

    def _decode(self, source: Source, job: Job, data: bytes) -> list[DecodedPiece]:
        process = self._idle.pop() if self._idle else DecoderProcess(self.settings)
        try:
            return process.decode(job, data)
        except DecodingError as error:
            _refuse(source, str(error))
        finally:
            self._idle.append(process)

    async def _run(self, work: Callable[[], ValueT]) -> ValueT:
        """Runs `work` in a thread. Decoders end when there was nothing to do for a while.

        A thread can't be stopped: where the client has left, its turn lasts until the thread ends.
        """
        self._n_jobs += 1
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait([working])
            working.exception()  # which is nobody's any more
            raise
        finally:
            loop.call_later(IDLE_S, self._end_if_idle, self._n_jobs)

    def _end_if_idle(self, n_jobs: int) -> None:
        if n_jobs == self._n_jobs:
            self.close()

    def close(self) -> None:
        """Ends the decoders that have nothing to do; others follow where they are needed."""
        while self._idle:
            self._idle.pop().close()

    def _refuse_large(self, source: Source) -> NoReturn:
        most = self.settings.max_bytes
        _refuse(source, f"has more than {most:,} bytes, the most that is allowed")


def _n_media(pieces: Sequence[DecodedPiece]) -> int:
    return sum(piece.medium is not None for piece in pieces)


def _n_bytes(source: Source) -> int:
    """Estimates the bytes of the file from its base64."""
    return (len(source.data) + len(source.url)) // 4 * 3


def _from_base64(source: Source) -> bytes:
    try:
        return b64decode(source.inline(), validate=True)
    except ValueError:
        _refuse(source, "is no base64")


def _is_described(source: Source, card: ModelCard) -> bool:
    """Whether a text stands for a medium that the model can't read."""
    return not _can_read(source.kind, card) and _is_told(source, card)


def _can_read(kind: FileKind | None, card: ModelCard) -> bool:
    """Whether the model can read such a file; one that was not read yet may be anything."""
    return kind is None or NEEDED.get(kind) in (None, *media_kinds(card))


def _is_told(source: Source, card: ModelCard) -> bool:
    """Whether the model is told of what it can't read, instead of the client."""
    return (card.unseen_media or ("describe" if source.from_tool else "refuse")) == "describe"


def _description(kind: FileKind, card: ModelCard) -> DecodedPiece:
    part = PARTS[NEEDED[kind]]
    text = f"[Here is {part} that can't be shown: the model {card.name} does not read such files.]"
    return DecodedPiece(text, None)


def check_can_read(source: Source, kind: FileKind | None, card: ModelCard) -> None:
    """`kind` is None of a file that was not read yet, and may be anything. Raises Refused."""
    needed, kinds = NEEDED.get(kind) if kind else None, media_kinds(card)
    if needed is not None and needed not in kinds:
        reads = " and ".join(("text", *(READ[kind] for kind in kinds)))
        _refuse(source, f"is {PARTS[needed]}; the model {card.name!r} reads {reads} only")


def _refuse(source: Source, problem: str) -> NoReturn:
    raise refused(f"`{source.path}` {problem}", source.path)
