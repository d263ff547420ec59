"""All models by their names, and by those of their adapters. Pure: nobody is called."""

import logging
from collections.abc import Iterable, Iterator

from deployments.contract.model_status import DEMO_SOURCE
from deployments.contract.served_adapters import SEPARATOR, ServedAdapter, named_adapter
from deployments.router.lifecycle.capacity import Resources
from deployments.router.lifecycle.model_entry import ModelEntry
from deployments.router.replicas.replica_set import ReplicaSet
from deployments.router.settings import Preset, RoutingSettings

log = logging.getLogger("ray.serve")


class Registry:
    """All models by their names, the default one first; those that are removed last."""

    def __init__(self, routing: RoutingSettings) -> None:
        self._routing = routing
        self._entries: dict[str, ModelEntry] = {}
        self._names: dict[str, str] = {}  # and aliases

    def __iter__(self) -> Iterator[ModelEntry]:
        return iter(list(self._entries.values()))

    def __getitem__(self, name: str) -> ModelEntry:
        return self._entries[name]

    def get(self, name: str) -> ModelEntry | None:
        return self._entries.get(name)

    def find(self, model: str | None) -> ModelEntry | None:
        """Finds a model by name or alias; None is the default model."""
        name = next(iter(self._names), None) if model is None else model
        return None if name is None or name not in self._names else self[self._names[name]]

    def find_for_request(self, model: str | None) -> ModelEntry | None:
        """The same, or the model of an adapter, or the model that has any name."""
        if (found := self.find(model)) is not None:
            return found
        if model is not None and (adapted := self.find_adapter(model)) is not None:
            return adapted[0]
        return next((entry for entry in self._entries.values() if entry.has_any_name), None)

    def find_adapter(self, name: str) -> tuple[ModelEntry, ServedAdapter] | None:
        """Finds an adapter by its name, or by its model's and its own."""
        for entry in self._present():
            found = named_adapter(name, entry.names, entry.adapters.table.adapters)
            if found is not None:
                return entry, found
        return None

    def has_name(self, entry: ModelEntry, adapter: str) -> bool:
        """Whether a request that names this adapter of the model means something already."""
        loaded = {name for model in self._present() for name in model.adapters.loaded}
        return adapter in loaded or self._presets_have(entry, adapter)

    def _presets_have(self, entry: ModelEntry, adapter: str) -> bool:
        names = (adapter, *(f"{name}{SEPARATOR}{adapter}" for name in entry.names))
        served = (lora.name for e in self._present() for lora in e.preset.served_adapters)
        return adapter in served or any(name in self._names for name in names)

    def drop_shadows(self) -> None:
        """Unloads those loaded adapters whose names the presets have given to something else."""
        for entry in self._present():
            for name in entry.adapters.loaded:
                if self._presets_have(entry, name):
                    log.warning("the adapter %s was unloaded: the presets have its name", name)
                    entry.adapters.unload(name)

    def deployed_as(self, application: str) -> ModelEntry | None:
        return next((e for e in self._entries.values() if e.application == application), None)

    def take(self, offers: Iterable[tuple[Preset, Resources]]) -> list[ModelEntry]:
        """Takes the models of the sources. Returns those whose settings have changed."""
        before, self._entries = self._entries, {}
        changed = []
        for preset, needs in offers:
            entry = before.pop(preset.settings.name, None) or self._entry(preset, needs)
            if entry.preset.settings != preset.settings:
                changed.append(entry)
            entry.preset, entry.needs, entry.is_removed = preset, needs, False
            entry.adapters.take(preset.served_adapters)
            self._entries[entry.name] = entry
        self._name()
        named = self.named
        for entry in self._entries.values():
            entry.has_any_name = self._routing.any_model_name and named == [entry]
        for entry in before.values():
            entry.is_removed, entry.has_any_name = True, False
        self._entries.update(before)
        self.drop_shadows()
        return changed

    @property
    def named(self) -> list[ModelEntry]:
        """The models that there are, without demos that nobody named."""
        return [entry for entry in self._present() if entry.preset.source != DEMO_SOURCE]

    def drop(self, entry: ModelEntry) -> None:
        del self._entries[entry.name]

    def _present(self) -> Iterator[ModelEntry]:
        return (entry for entry in self._entries.values() if not entry.is_removed)

    def _entry(self, preset: Preset, needs: Resources) -> ModelEntry:
        replicas = ReplicaSet(preset.settings.name, self._routing)
        return ModelEntry(preset, needs, replicas)

    def _name(self) -> None:
        self._names = {name: name for name in self._entries}
        for name, entry in self._entries.items():
            for alias in entry.preset.aliases:
                self._names.setdefault(alias, name)
