"""Replicas in one process, that pull pages of each other."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from deployments.contract.requests import GenerationRequest
from kv.arrivals import PageKey, PrefixHolder
from kv.tiers.parcel import PageReader, Parcel


@dataclass
class Peer:
    """Another replica: each parcel is what `send` makes of it. Without `pages` it is gone."""

    pages: PageReader | None = None
    send: Callable[[Parcel], Parcel] = lambda parcel: parcel
    is_silent: bool = False
    n_asked: int = 0

    def __call__(
        self,
        replica_id: str,
        namespace: bytes,
        pieces: Sequence[Sequence[PageKey]],
        take: Callable[[int, Parcel], bool],
        done: Callable[[], object],
    ) -> None:
        self.n_asked += 1

        def answer() -> None:
            for number, keys in enumerate(pieces if self.pages is not None else ()):
                assert self.pages is not None
                take(number, self.send(self.pages.read(namespace, keys)))
            done()

        if not self.is_silent:
            threading.Thread(target=answer).start()


def pulling(one: GenerationRequest, page_size: int) -> GenerationRequest:
    """A request, all pages of which another replica holds in the router's words."""
    return replace(one, prefix_holder=PrefixHolder("first", len(one.prompt_ids) // page_size))
