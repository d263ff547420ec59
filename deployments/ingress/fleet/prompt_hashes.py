"""Page hashes of prompts: once for all choices of an answer, off the loop where it takes long."""

import asyncio
from collections.abc import Sequence

from deployments.contract.requests import GenerationRequest
from kv.content import PLAIN, Content, page_hashes

OFF_LOOP_TOKENS = 4096  # tokens from which a prompt is hashed in a thread


class PromptHashes:
    """Belongs to one event loop; remembers the last prompt, for its other choices come next."""

    def __init__(self) -> None:
        self._prompt: Sequence[int] = ()
        self._kind: tuple[int, Content] = (0, PLAIN)
        self._hashes: asyncio.Task[tuple[bytes, ...]] | tuple[bytes, ...] = ()

    async def page_hashes(self, request: GenerationRequest, page_size: int) -> tuple[bytes, ...]:
        kind = page_size, request.content
        # The very same ids, not equal ones: comparing them would take as long as hashing.
        if self._prompt is not request.prompt_ids or self._kind != kind:
            self._prompt, self._kind = request.prompt_ids, kind
            self._hashes = _hash(request, page_size)
        hashes = self._hashes
        return hashes if isinstance(hashes, tuple) else await asyncio.shield(hashes)


def _hash(
    request: GenerationRequest, page_size: int
) -> asyncio.Task[tuple[bytes, ...]] | tuple[bytes, ...]:
    asked = request.prompt_ids, page_size, request.content
    if len(request.prompt_ids) < OFF_LOOP_TOKENS:
        return tuple(page_hashes(*asked))
    return asyncio.ensure_future(asyncio.to_thread(lambda: tuple(page_hashes(*asked))))
