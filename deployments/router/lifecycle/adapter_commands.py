"""Loads and unloads adapters and sets their default scales, by commands of clients.

Nothing is loaded unless an operator named a folder, and nothing from without it. Replicas are told
nothing: each request brings its adapters, so that one which runs keeps those it began with.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from deployments.adapter_files import CONFIG_FILE, WEIGHTS_FILE, AdapterError, read_adapter_info
from deployments.contract.errors import ErrorKind, RequestError, refused
from deployments.contract.served_adapters import MAX_CHOSEN, NAME, NAME_WORDS
from deployments.router.lifecycle.model_entry import ModelEntry
from deployments.router.lifecycle.registry import Registry
from deployments.router.settings import AdapterSettings, NamedAdapter

log = logging.getLogger("ray.serve")

OFF = RequestError(
    ErrorKind.FEATURE_DISABLED,
    "Adapters can't be loaded or unloaded: the router has no `adapters_dir`",
)


class Memory(Protocol):
    """A memory like `deployments.router.lifecycle.cluster_memory.ClusterMemory`. It blocks."""

    def remember(self, value: Mapping[str, object]) -> None: ...

    def recall(self) -> object: ...


class AdapterCommands:
    """Belongs to one event loop. `changed` is called with each model whose adapters changed."""

    def __init__(
        self,
        settings: AdapterSettings | None,
        registry: Registry,
        changed: Callable[[ModelEntry], None],
        memory: Memory,
    ) -> None:
        self._memory = memory
        self._settings = settings
        self._registry = registry
        self._changed = changed
        self._lock = asyncio.Lock()

    async def restore(self) -> None:
        """Restores what was loaded and set before this router started.

        Its folder may be another one.
        """
        recalled = await asyncio.to_thread(self._memory.recall)
        for name, dumped in recalled.items() if isinstance(recalled, dict) else ():
            entry = self._registry.get(name)
            if entry is None:
                continue
            try:
                entry.adapters.restore(dumped)
            except (KeyError, TypeError, ValueError) as error:
                log.warning("the adapters loaded for model %s are lost: %r", name, error)
            self._drop_outside(entry)
        self._registry.drop_shadows()

    async def load(
        self, name: str, path: str, model: str | None, replaces: bool
    ) -> RequestError | None:
        """Returns the refusal, if any. `replaces`: another one that was loaded under this name."""
        if self._settings is None:
            return OFF
        async with self._lock:
            entry = self._model(model)
            if isinstance(entry, RequestError):
                return entry
            if refusal := self._refuse(entry, name, replaces):
                return refusal
            adapter = await asyncio.to_thread(read_inside, self._settings.folder, name, path)
            if isinstance(adapter, RequestError):
                return adapter
            most = entry.preset.settings.limits.max_lora_rank
            if adapter.rank > most:
                message = f"The adapter has rank {adapter.rank}, and `max-lora-rank` is {most}"
                return refused(message, "lora_path").error
            # A presets file may have been read meanwhile.
            if refusal := self._refuse(entry, name, replaces):
                return refusal
            chosen = [served for served in entry.adapters.table.adapters if served.default_scale]
            if any(served.name == name for served in chosen):
                ranks = [adapter.rank, *(served.rank for served in chosen if served.name != name)]
                if refusal := _refuse_ranks(entry, ranks, "lora_path"):
                    return refusal
            log.info("model %s has the adapter %s from %s", entry.name, name, adapter.path)
            entry.adapters.load(adapter)
            await self._keep(entry)
        return None

    async def unload(self, name: str) -> RequestError | None:
        """Requests that have it end as they began. Returns the refusal, if any."""
        if self._settings is None:
            return OFF
        async with self._lock:
            entry = next((model for model in self._registry if name in model.adapters.loaded), None)
            if entry is None and self._registry.find_adapter(name) is not None:
                message = f"The adapter {name!r} was not loaded by a client: the presets have it"
                return refused(message, "lora_name").error
            if entry is None:
                message = f"The adapter {name!r} does not exist"
                return RequestError(ErrorKind.MODEL_NOT_FOUND, message, "lora_name")
            log.info("model %s no longer has the adapter %s", entry.name, name)
            entry.adapters.unload(name)
            await self._keep(entry)
        return None

    async def scale(
        self, entry: ModelEntry, scales: Sequence[tuple[int, float]]
    ) -> RequestError | None:
        """The default scales, by ids; all others are 0. Returns the refusal, if any."""
        async with self._lock:
            known = {adapter.id for adapter in entry.adapters.table.adapters}
            for index, (adapter_id, _) in enumerate(scales):
                if adapter_id not in known:
                    message = (
                        f"`[{index}].id`: the model {entry.name!r} has no adapter {adapter_id}"
                    )
                    return refused(message, f"[{index}].id").error
            if len([scale for _, scale in scales if scale]) > MAX_CHOSEN:
                return refused(f"At most {MAX_CHOSEN} adapters may have a scale but 0").error
            chosen = dict(scales)
            ranks = [
                adapter.rank for adapter in entry.adapters.table.adapters if chosen.get(adapter.id)
            ]
            if refusal := _refuse_ranks(entry, ranks, "scale"):
                return refusal
            entry.adapters.set_defaults(chosen)
            await self._keep(entry)
        return None

    def _model(self, model: str | None) -> ModelEntry | RequestError:
        if model is None and len(self._registry.named) > 1:
            message = "`base_model_name` is required, because there are several models"
            return refused(message, "base_model_name").error
        entry = self._registry.find(model)
        if entry is None:
            message = f"The model {model!r} does not exist" if model else "There is no model"
            return RequestError(ErrorKind.MODEL_NOT_FOUND, message, "base_model_name")
        return entry

    def _refuse(self, entry: ModelEntry, name: str, replaces: bool) -> RequestError | None:
        assert self._settings is not None
        if not NAME.fullmatch(name):
            return refused(f"`lora_name` must be {NAME_WORDS}", "lora_name").error
        if entry.is_removed:
            message = f"The model {entry.name!r} does not exist"
            return RequestError(ErrorKind.MODEL_NOT_FOUND, message, "base_model_name")
        if not entry.preset.settings.limits.max_loras:
            message = f"The model {entry.name!r} takes no adapters: its `max-loras` is 0"
            return refused(message, "base_model_name").error
        if name in entry.adapters.loaded:
            message = f"The adapter {name!r} is loaded already; `load_inplace` replaces it"
            return None if replaces else refused(message, "lora_name").error
        if self._registry.has_name(entry, name):
            return refused(f"The name {name!r} is taken", "lora_name").error
        n_loaded = sum(len(model.adapters.loaded) for model in self._registry)
        if n_loaded >= self._settings.max_loaded:
            message = f"{n_loaded} adapters are loaded already, and `adapters_max` allows no more"
            return RequestError(ErrorKind.OVERLOADED, message)
        return None

    async def _keep(self, entry: ModelEntry) -> None:
        self._changed(entry)
        kept = {
            model.name: model.adapters.dump() for model in self._registry if not model.is_removed
        }
        try:
            await asyncio.to_thread(self._memory.remember, kept)
        except Exception as error:  # whatever ails the cluster: this router knows it
            log.warning("a router that follows will not know of the adapters: %r", error)

    def _drop_outside(self, entry: ModelEntry) -> None:
        folder = None if self._settings is None else Path(self._settings.folder)
        for adapter in entry.adapters.table.adapters:
            if adapter.is_loaded and (
                folder is None or not Path(adapter.path).is_relative_to(folder)
            ):
                log.warning(
                    "the adapter %s is not in `adapters_dir`, and was unloaded", adapter.name
                )
                entry.adapters.unload(adapter.name)


def _refuse_ranks(entry: ModelEntry, ranks: Sequence[int], param: str) -> RequestError | None:
    """Returns the refusal of default adapters whose ranks are too large together.

    Requests that choose no adapters get these, and all such requests would be refused.
    """
    most = entry.preset.settings.limits.max_lora_rank
    if sum(ranks) <= most:
        return None
    message = (
        f"The adapters with a scale but 0 have rank {sum(ranks)} together, and `max-lora-rank` is "
        f"{most}"
    )
    return refused(message, param).error


def read_inside(folder: str, name: str, path: str) -> NamedAdapter | RequestError:
    """The adapter at a path that starts at `folder`; neither it nor its files may be elsewhere,
    wherever links lead. Blocks.
    """
    root = Path(folder).resolve()
    try:
        found = (root / path).resolve()
        files = [(found / file).resolve() for file in (CONFIG_FILE, WEIGHTS_FILE)]
    except (OSError, RuntimeError, ValueError):  # as of a zero byte, or of links in a circle
        files, found = [], Path("/")
    if not all(resolved.is_relative_to(root) for resolved in (found, *files)):
        return refused(
            "`lora_path` must be a folder in the router's `adapters_dir`", "lora_path"
        ).error
    try:
        info = read_adapter_info(str(found))
    except AdapterError as error:
        reason = str(error).replace(str(found), path)  # clients are not told where the folder is
        message = f"`lora_path` has no adapter that can be served: {reason}"
        return refused(message, "lora_path").error
    return NamedAdapter(name=name, path=str(found), digest=info.digest, rank=info.rank)
