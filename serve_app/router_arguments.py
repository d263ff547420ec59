"""The `args` of the router in `serve.yaml`: models, capacity and routing.

The options of a model are the same as in a presets file; ModelOptions has both.
"""

from dataclasses import fields
from pathlib import Path
from typing import Annotated

from pydantic import Field

from deployments.contract.model_status import DEMO_SOURCE
from deployments.engine.loading.gguf.names import model_name
from deployments.router.presets.ini_file import PresetError
from deployments.router.presets.option_types import Name
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.sources import Sources, with_absolute_paths
from deployments.router.presets.strict_options import StrictOptions, Unset
from deployments.router.settings import (
    AdapterSettings,
    CapacitySettings,
    DownloadSettings,
    Preset,
    RoutingSettings,
)

DEMO_MODEL = Path(__file__).parent / "demo" / "model"
DEMO_NAME = "manta-demo"
# What it answers well, also when it is sampled.
DEMO_STARTERS = (
    "What can you do?",
    "What is Manta?",
    "Tell me a story about a fox named Finn",
    "What is 17 + 26?",
)
SEEING_DEMO_MODEL = Path(__file__).parent / "demo" / "vision"
SEEING_DEMO_NAME = "manta-demo-vision"
SEEING_DEMO_KV_GIB = 0.125
# Options for the model that `model` names, or the demo model, only.
OF_ONE_MODEL = frozenset({"name", "aliases", "tags", "starters", "adapters", "lora_modules"})
OPTIONS = frozenset(ModelOptions.model_fields)
CAPACITY = CapacitySettings()
ROUTING = RoutingSettings()
DOWNLOADS_MAX_GIB = DownloadSettings(folder="").max_gib
MAX_LOADED_ADAPTERS = AdapterSettings(folder="").max_loaded


class RoutingArguments(StrictOptions):
    """Costs in pages of prompt to compute; RoutingSettings says more of what they mean."""

    pending: float = Field(
        default=ROUTING.pending, ge=0, description="Of a page of prompt that others wait for there"
    )
    decode: float = Field(
        default=ROUTING.decode, ge=0, description="Of a sequence that is decoded there"
    )
    queued: float = Field(
        default=ROUTING.queued, ge=0, description="Of a sequence that waits there"
    )
    wake: float = Field(
        default=ROUTING.wake, ge=0, description="Of waking a replica from its sleep"
    )
    balance: float = Field(
        default=ROUTING.balance,
        ge=0,
        description="Of a replica that was lately sent twice the work of the average one",
    )
    session: float = Field(
        default=ROUTING.session,
        ge=0,
        description="What it is worth to stay at the replica of the conversation's last request",
    )
    temperature: float = Field(
        default=ROUTING.temperature,
        ge=0,
        description="0 takes the cheapest replica. Above 0 a softmax over the costs draws one",
    )
    max_index_pages: int = Field(
        default=ROUTING.max_index_pages,
        ge=1,
        description="Pages of replicas' caches that the router remembers",
    )


class RouterArguments(ModelOptions):
    """Arguments of the application `router`. An option of a model applies to all models."""

    name: Annotated[Name | None, Unset("the id, or the name of the directory or the file")] = Field(
        default=None, description="What clients send as `model` for the argument `model`"
    )
    presets: Annotated[str | None, Unset("none")] = Field(
        default=None, min_length=1, description="INI file with a section for each model"
    )
    models_dir: Annotated[str | None, Unset("none")] = Field(
        default=None,
        min_length=1,
        description="Each folder in it with a config.json or a GGUF file, and each GGUF file right "
        "in it, is a model",
    )
    downloads_dir: Annotated[str | None, Unset("off")] = Field(
        default=None,
        min_length=1,
        description="Folder for the models that `POST /models` downloads from the hub",
    )
    downloads_max_gib: float = Field(
        default=DOWNLOADS_MAX_GIB,
        gt=0,
        description="GiB of all downloaded models together",
    )
    adapters_dir: Annotated[str | None, Unset("off")] = Field(
        default=None,
        min_length=1,
        description="Folder of the LoRA adapters that `POST /v1/load_lora_adapter` may load",
    )
    adapters_max: int = Field(
        default=MAX_LOADED_ADAPTERS,
        ge=1,
        description="Adapters loaded so, of all models together",
    )
    models_max: int = Field(
        default=CAPACITY.models_max, ge=0, description="Models loaded at once. 0 is any number"
    )
    autoload: bool = Field(
        default=CAPACITY.autoload, description="A request loads the model that it names"
    )
    any_model_name: bool = Field(
        default=ROUTING.any_model_name,
        description="While there is one model, beside the demo that sees, it answers requests for "
        "any `model`, as that of llama-server does",
    )
    cpu_memory_gib: Annotated[float | None, Unset("no limit")] = Field(
        default=CAPACITY.cpu_memory_gib,
        gt=0,
        description="GiB for weights and pages of all loaded models, estimated from their files",
    )
    gpu_memory_gib: Annotated[float | None, Unset("no limit")] = Field(
        default=CAPACITY.gpu_memory_gib, gt=0, description="The same of GPUs"
    )
    grows: bool = Field(
        default=CAPACITY.grows,
        description="The cluster adds nodes by itself, so its present size is no limit",
    )
    load_timeout_s: float = Field(
        default=CAPACITY.load_timeout_s, gt=0, description="Seconds for a model to load, or to wake"
    )
    routing: RoutingArguments = Field(
        default=RoutingArguments(), description="Weights of the cost by which a replica is chosen"
    )

    def settings(self) -> tuple[object, ...]:
        """Returns the arguments of its deployment. Raises ValueError for what can't be used."""
        return (
            self.checked_sources(),
            self.capacity_settings(),
            self.routing_settings(),
            self.download_settings(),
            self.adapter_settings(),
        )

    def sources(self) -> Sources:
        """Raises ValueError for a model or a file that cannot exist."""
        return Sources(
            argument=self._argument(),
            demos=self._demos(),
            overrides=with_absolute_paths(
                self._options(OPTIONS - OF_ONE_MODEL - {"model"}), Path.cwd()
            ),
            presets=_whole(self.presets),
            folder=_whole(self.models_dir),
            downloads=_whole(self.downloads_dir),
        )

    def download_settings(self) -> DownloadSettings | None:
        """Raises ValueError for a limit without a folder."""
        folder = _whole(self.downloads_dir)
        if folder is None:
            if "downloads_max_gib" in self.model_fields_set:
                raise ValueError("downloads_max_gib: downloads are off without a downloads_dir")
            return None
        return DownloadSettings(folder=folder, max_gib=self.downloads_max_gib)

    def adapter_settings(self) -> AdapterSettings | None:
        """Raises ValueError for a folder that does not exist, or for a limit without a folder."""
        folder = _whole(self.adapters_dir)
        if folder is None:
            if "adapters_max" in self.model_fields_set:
                raise ValueError("adapters_max: no adapters_dir is said beside it")
            return None
        if not Path(folder).is_dir():
            raise ValueError(f"adapters_dir: there is no directory {folder}")
        return AdapterSettings(folder=folder, max_loaded=self.adapters_max)

    def capacity_settings(self) -> CapacitySettings:
        return CapacitySettings(**{f.name: getattr(self, f.name) for f in fields(CapacitySettings)})

    def routing_settings(self) -> RoutingSettings:
        return RoutingSettings(**self.routing.model_dump(), any_model_name=self.any_model_name)

    def checked_sources(self) -> Sources:
        """The sources, of which all presets are valid. Raises ValueError."""
        sources = self.sources()
        first = [preset for preset in sources.read() if preset.load_on_startup]
        if 0 < self.models_max < len(first):
            raise PresetError(
                f"{len(first)} models are to be loaded on start-up, and models_max is "
                f"{self.models_max}"
            )
        return sources

    def _argument(self) -> Preset | None:
        """The one model that the arguments describe."""
        if self.model is None and not self._is_demo:
            for name in sorted(OF_ONE_MODEL & self.model_fields_set):
                raise PresetError(f"{name}: it is of one model, and no `model` is said beside it")
            return None
        own = with_absolute_paths(
            self._options(OPTIONS if self.model else OPTIONS - {"model"}), Path.cwd()
        )
        starters = () if self.model else DEMO_STARTERS
        default = ModelOptions(
            model=str(DEMO_MODEL), starters=starters, load_on_startup=True, pinned=True
        )
        return own.over(default).preset(self._name(), source="argument")

    def _demos(self) -> tuple[Preset, ...]:
        """The one that sees, beside the demo model: it is loaded by a request for it. Arguments say
        nothing of it: what fits the demo model may not fit it, or leave no room for it."""
        if not self._is_demo:
            return ()
        options = ModelOptions(model=str(SEEING_DEMO_MODEL), kv_gib=SEEING_DEMO_KV_GIB)
        return (options.preset(SEEING_DEMO_NAME, source=DEMO_SOURCE),)

    @property
    def _is_demo(self) -> bool:
        return self.model is None and self.presets is None and self.models_dir is None

    def _options(self, names: frozenset[str]) -> ModelOptions:
        """The options that are set."""
        return ModelOptions.model_validate(self.model_dump(include=set(names), exclude_unset=True))

    def _name(self) -> str:
        if self.name is not None or self.model is None:
            return self.name or DEMO_NAME
        path = Path(self.model).expanduser()
        if path.is_dir():
            return path.resolve().name
        return model_name(path.name) if path.is_file() else self.model


def _whole(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().resolve())
