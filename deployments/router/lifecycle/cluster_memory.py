"""The memory that a router leaves to its successor. It is in the Ray cluster, and ends with it.

All of it blocks: never to be called on an event loop.
"""

import json
from collections.abc import Mapping

from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

NAMESPACE = b"manta"


class ClusterMemory:
    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def remember(self, value: Mapping[str, object]) -> None:
        _internal_kv_put(self._key, json.dumps(value).encode(), namespace=NAMESPACE)

    def recall(self) -> object:
        """JSON; None where nothing was remembered."""
        found = _internal_kv_get(self._key, namespace=NAMESPACE)
        return None if found is None else json.loads(found)
