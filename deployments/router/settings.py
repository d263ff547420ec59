"""The settings of the fleet; read once, at the root."""

from dataclasses import dataclass

from deployments.contract.weights_form import WeightsForm
from deployments.model.settings import ModelSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAdapter:
    """A LoRA adapter that requests may choose. `digest` is of its files in the folder `path`."""

    name: str
    path: str
    digest: bytes
    rank: int
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model that can be served.

    load_on_startup: at the router's start, without being asked for.
    pinned: is never unloaded to make room for another one.
    source: "argument", DEMO_SOURCE, "preset", "folder" or "download".
    text: its section of the INI file, completed from `[*]`.
    starters: questions that the page offers.
    modalities: what it takes, by its files; None: not known before it is loaded.
    weights: in which form its files have them; None: not known before it is loaded.
    served_adapters: no part of its settings, because replicas learn of them by requests.
    """

    settings: ModelSettings
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    load_on_startup: bool = False
    pinned: bool = False
    source: str = "argument"
    text: str = ""
    starters: tuple[str, ...] = ()
    modalities: tuple[str, ...] | None = None
    weights: WeightsForm | None = None
    served_adapters: tuple[NamedAdapter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """Costs are in pages of prompt to compute.

    pending: of a page that others wait for there: it delays this prompt, and is no work of its own.
    decode: of one sequence that runs.
    queued: of one that waits, beside its own prompt.
    wake: of waking a replica that sleeps.
    balance: of being sent twice the work, lately, that replicas are sent on average.
    session: what it is worth that a conversation's last request went to the same replica.
    temperature: 0 takes the cheapest replica; above, a softmax over costs draws.
    max_index_pages: what the router remembers of replicas' caches.
    any_model_name: the only model answers to any name; demos don't count.
    """

    pending: float = 0.5
    decode: float = 1.0
    queued: float = 4.0
    wake: float = 64.0
    balance: float = 384.0
    session: float = 16.0
    temperature: float = 0.0
    max_index_pages: int = 1_000_000
    any_model_name: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadSettings:
    """folder: where downloaded models lie.
    max_gib: of all of them together.
    """

    folder: str
    max_gib: float = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """folder: where adapters lie that clients may have loaded.
    max_loaded: of all models together.
    """

    folder: str
    max_loaded: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    """How much may be loaded at once; None sets no limit.

    models_max: models, as llama-server counts them; 0 for no limit.
    cpu_memory_gib, gpu_memory_gib: weights and pages of all replicas, as estimated from the files.
    grows: Ray's autoscaler adds nodes, so that what the cluster has now is no limit.
    autoload: a request loads its model.
    load_timeout_s: for a model to become ready, or to wake.
    """

    models_max: int = 4
    cpu_memory_gib: float | None = None
    gpu_memory_gib: float | None = None
    grows: bool = False
    autoload: bool = True
    load_timeout_s: float = 600.0
