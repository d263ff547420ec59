"""The adapters of one model: those of its preset, those that clients had loaded, default scales.

Pure. A name keeps its id as long as it has an adapter, and no other name gets that id later.
"""

from collections.abc import Mapping, Sequence

from deployments.contract.served_adapters import NO_ADAPTERS, AdapterTable, ServedAdapter
from deployments.router.settings import NamedAdapter


class AdapterSet:
    def __init__(self) -> None:
        self.table = NO_ADAPTERS
        self._presets: dict[str, NamedAdapter] = {}
        self._loaded: dict[str, NamedAdapter] = {}
        self._defaults: dict[str, float] = {}  # scales, by names
        self._ids: dict[str, int] = {}
        self._next_id = 0

    @property
    def loaded(self) -> Sequence[str]:
        """Names of those that clients had loaded."""
        return list(self._loaded)

    def take(self, presets: Sequence[NamedAdapter]) -> None:
        """The preset's adapters; one that was loaded under the same name goes."""
        self._presets = {adapter.name: adapter for adapter in presets}
        self._loaded = {k: adapter for k, adapter in self._loaded.items() if k not in self._presets}
        self._update()

    def load(self, adapter: NamedAdapter) -> None:
        """Adds an adapter, in the place of one that was loaded under its name before."""
        self._loaded[adapter.name] = adapter
        self._update()

    def unload(self, name: str) -> None:
        """Removes an adapter that clients had loaded."""
        del self._loaded[name]
        self._update()

    def set_defaults(self, scales: Mapping[int, float]) -> None:
        """Sets the default scales by ids; all others are 0."""
        names = {self._ids[name]: name for name in self._ids}
        self._defaults = {names[adapter_id]: scale for adapter_id, scale in scales.items() if scale}
        self._update()

    def dump(self) -> Mapping[str, object]:
        """Returns all that no preset says, as JSON has it."""
        return {
            "loaded": [_dumped(adapter) for adapter in self._loaded.values()],
            "defaults": self._defaults,
            "ids": self._ids,
            "next_id": self._next_id,
        }

    def restore(self, dumped: Mapping[str, object]) -> None:
        """Takes what an earlier router had.

        Raises KeyError, TypeError or ValueError for other data.
        """
        loaded, defaults, ids, next_id = (
            dumped[name] for name in ("loaded", "defaults", "ids", "next_id")
        )
        if not (isinstance(loaded, list) and isinstance(defaults, dict) and isinstance(ids, dict)):
            raise TypeError("no adapters of an earlier router")
        found = [_restored(entry) for entry in loaded]
        self._loaded = {
            adapter.name: adapter for adapter in found if adapter.name not in self._presets
        }
        self._defaults = {str(name): float(scale) for name, scale in defaults.items()}
        self._ids = {str(name): int(adapter_id) for name, adapter_id in ids.items()}
        self._next_id = int(str(next_id))
        self._update()

    def _update(self) -> None:
        named = self._presets | self._loaded
        self._ids = {name: adapter_id for name, adapter_id in self._ids.items() if name in named}
        self._defaults = {k: scale for k, scale in self._defaults.items() if k in named}
        for name in named:
            if name not in self._ids:
                self._ids[name] = self._next_id
                self._next_id += 1
        self.table = AdapterTable.from_adapters(map(self._served, named.values()))

    def _served(self, adapter: NamedAdapter) -> ServedAdapter:
        return ServedAdapter(
            id=self._ids[adapter.name],
            name=adapter.name,
            path=adapter.path,
            digest=adapter.digest,
            rank=adapter.rank,
            scale=adapter.scale,
            default_scale=self._defaults.get(adapter.name, 0.0),
            is_loaded=adapter.name in self._loaded,
        )


def _dumped(adapter: NamedAdapter) -> Mapping[str, object]:
    return {
        "name": adapter.name,
        "path": adapter.path,
        "digest": adapter.digest.hex(),
        "rank": adapter.rank,
    }


def _restored(dumped: Mapping[str, object]) -> NamedAdapter:
    return NamedAdapter(
        name=str(dumped["name"]),
        path=str(dumped["path"]),
        digest=bytes.fromhex(str(dumped["digest"])),
        rank=int(str(dumped["rank"])),
    )
