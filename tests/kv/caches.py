"""Small caches for tests."""

from typing import Any

from kv.cache import KVCache
from kv.layout import Layout, alike
from kv.shape import CacheShape

MAX_TASKS, MAX_TOKENS = 4, 16
STATE_BYTES = 8
PLAIN = alike(1, 1, 1)


def small_cache(
    n_pages: int, page_size: int, layout: Layout = PLAIN, states: int | None = None, **changes: int
) -> KVCache:
    sizes: dict[str, Any] = {"max_tasks": MAX_TASKS, "max_tokens": MAX_TOKENS, **changes}
    sizes |= {"has_states": states is not None, "max_checkpoints": states or 0}
    sizes |= {"state_bytes": STATE_BYTES}
    return KVCache(CacheShape(layout=layout, n_pages=n_pages, page_size=page_size, **sizes))
