"""Saves and restores slots, on a thread of its own that may wait for files."""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Protocol, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.contract.slots import SlotAction, SlotReport, SlotVerb
from deployments.engine.needs.slots.slot_cache import (
    COPIED_WHEN_IDLE,
    ERASED_BETWEEN_STEPS,
    SavedPages,
    SlotCache,
)
from kv.arrivals import PageKey
from kv.tiers.bundle import aligned, owner_tag
from kv.tiers.disk import are_finite
from kv.tiers.slot_file import (
    NoRoomError,
    SlotFileError,
    SlotHeader,
    header_bytes,
    make_slot_header,
)
from kv.tiers.slot_folder import SlotFolder, SlotReader

T = TypeVar("T")
PageLine = tuple[PageKey, int, int]  # a page as a header says it: key, bytes, checksum


class Ask(Protocol):
    """Has the scheduler's thread do something between two steps, which is told whether it is idle.
    Raises what that raises."""

    def __call__(self, work: Callable[[bool], T], /) -> T: ...


class SlotActions:
    """One thread calls `act`."""

    def __init__(
        self, cache: SlotCache, folder: SlotFolder, ask: Ask, *, takes_adapters: bool
    ) -> None:
        self._cache, self._folder, self._ask = cache, folder, ask
        self._takes_adapters = takes_adapters

    def clean(self) -> None:
        """Removes what is left of files that were never whole. Raises OSError."""
        self._folder.clean()

    def act(self, action: SlotAction) -> SlotReport:
        """Raises Refused."""
        began = perf_counter()
        verbs = {
            SlotVerb.SAVE: self._save,
            SlotVerb.RESTORE: self._restore,
            SlotVerb.ERASE: self._erase,
        }
        n_tokens, n_bytes = verbs[action.verb](action)
        return SlotReport(n_tokens, n_bytes, (perf_counter() - began) * 1e3)

    def _erase(self, action: SlotAction) -> tuple[int, int]:
        n_tokens, hashes = self._ask(lambda is_idle: self._cache.forget(action))
        for end in range(len(hashes), 0, -ERASED_BETWEEN_STEPS):
            self._discard(hashes[max(0, end - ERASED_BETWEEN_STEPS) : end])
        return n_tokens, 0

    def _discard(self, hashes: Sequence[bytes]) -> None:
        self._ask(lambda is_idle: self._cache.discard(hashes))

    def _save(self, action: SlotAction) -> tuple[int, int]:
        """Returns the tokens and the bytes of the file."""
        saved = self._ask(lambda is_idle: self._cache.find_saved(action))
        n_bytes = header_bytes(saved.sequence, len(saved.keys))
        n_bytes += sum(aligned(self._cache.lengths[key.group]) for key in saved.keys)
        try:
            self._write(action, saved, n_bytes)
        except SlotFileError as error:
            is_full = isinstance(error, NoRoomError)
            kind = ErrorKind.STORAGE_FULL if is_full else ErrorKind.INVALID_REQUEST
            raise Refused.of_kind(kind, f"Unable to save slot: {error}", "filename") from error
        except OSError as error:
            message = f"Unable to save slot: {error.strerror}"
            raise Refused.of_kind(ErrorKind.INTERNAL, message) from error
        return len(saved.sequence.token_ids), n_bytes

    def _write(self, action: SlotAction, saved: SavedPages, n_bytes: int) -> None:
        """Raises Refused, SlotFileError, OSError."""
        sequence, keys = saved
        at, n_copied = header_bytes(sequence, len(keys)), 0
        size = max(COPIED_WHEN_IDLE, *map(aligned, self._cache.lengths))
        buffer = np.zeros(min(size, n_bytes), dtype=np.uint8)
        lines: list[PageLine] = []
        with self._folder.writing(action.owner, action.filename, n_bytes) as write:
            while n_copied < len(keys):
                end = self._copy(keys, n_copied, buffer)
                n_filled = self._check(keys[n_copied:end], buffer, lines)
                write(buffer[:n_filled].data, at)
                at, n_copied = at + n_filled, end
            tag = owner_tag(action.owner)
            write(make_slot_header(self._folder.namespace, tag, sequence, lines).encode(), 0)

    def _copy(self, keys: Sequence[PageKey], begin: int, buffer: NDArray[np.uint8]) -> int:
        return self._ask(lambda is_idle: self._cache.copy(keys, begin, buffer, is_idle=is_idle))

    def _check(
        self, keys: Sequence[PageKey], buffer: NDArray[np.uint8], lines: list[PageLine]
    ) -> int:
        """Appends what the header says of the pages in the buffer, and returns their bytes. Raises
        Refused for numbers that are not finite: they would outlive restarts."""
        at = 0
        for key in keys:
            length = self._cache.lengths[key.group]
            page = buffer[at : at + length]
            if not are_finite(page, [(self._cache.dtype, length)]):
                raise refused("Unable to save slot: some of its numbers are not finite")
            lines.append((key, length, crc32(page.data)))
            buffer[at + length : at + aligned(length)] = 0
            at += aligned(length)
        return at

    def _restore(self, action: SlotAction) -> tuple[int, int]:
        """Returns the tokens that are found now, and the bytes of the file."""
        try:
            with self._folder.reading(action.owner, action.filename) as file:
                self._check_header(file.header)
                return self._bring(action, file), file.header.n_bytes
        except (SlotFileError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            message = f"Unable to restore slot: {action.filename}: {why}"
            raise refused(message, "filename") from error

    def _check_header(self, header: SlotHeader) -> None:
        """Raises SlotFileError."""
        sequence, lengths = header.sequence, self._cache.lengths
        if len(sequence.token_ids) >= self._cache.max_tokens:
            most = self._cache.max_tokens
            raise SlotFileError(f"its tokens do not fit in the context of {most}")
        if sequence.adapters and not self._takes_adapters:
            names = ", ".join(adapter.label for adapter in sequence.adapters)
            raise SlotFileError(f"it was made with adapters ({names}), and the model takes none")
        for record in header.records:
            group = record.key.group
            if group >= len(lengths) or record.length != lengths[group]:
                raise SlotFileError("its pages have another size")

    def _bring(self, action: SlotAction, file: SlotReader) -> int:
        """Reads all pages into the cache. What was read counts only if all of it is whole."""
        sequence = file.header.sequence
        arrival = self._ask(lambda is_idle: self._cache.begin_arrival(sequence.hashes))
        try:
            for key, content in file.pages():
                raw = np.frombuffer(content, dtype=np.uint8)
                arrival.write(key, partial(self._cache.fill, raw))
        except BaseException:
            self._ask(lambda is_idle: self._cache.give_up_arrival())
            raise
        return self._ask(lambda is_idle: self._cache.end_arrival(action, sequence))
