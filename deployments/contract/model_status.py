"""The states of models, as the router tells them."""

from dataclasses import dataclass
from enum import StrEnum

from deployments.contract.served_adapters import NO_ADAPTERS, AdapterTable
from deployments.contract.weights_form import WeightsForm


class ModelState(StrEnum):
    """A model that is SLEEPING is deployed and holds neither weights nor pages."""

    DOWNLOADING = "downloading"
    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    SLEEPING = "sleeping"
    UNLOADING = "unloading"
    FAILED = "failed"


DEMO_SOURCE = "demo"  # of models that nobody named, beside the demo model


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far a replica, or a download, has come with `stage`, from 0 to 1."""

    stage: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """A model as the router knows it; `message` says why it failed or what it waits for.

    source: where it is from: "argument", DEMO_SOURCE, "preset", "folder" or "download".
    preset: its section of the INI file, completed from `[*]`; "" without one.
    starters: questions that a page may offer.
    path: where it is loaded from, as its settings have it.
    modalities: what it takes, by its files; None: only its card will say it.
    weights: in which form its files have them; None: only its card will say it.
    replicas: those that answer; `replicas_target`: those that there are to be.
    version: of the card that most of them have; "" while none has said it.
    unloads: by operators, so far.
    will_retry: after it failed, without being asked for.
    has_any_name: requests with names that no model has are its requests.
    adapters: that requests may choose.
    """

    name: str
    application: str
    state: ModelState
    created: int  # Unix seconds
    message: str = ""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source: str = "argument"
    preset: str = ""
    starters: tuple[str, ...] = ()
    path: str = ""
    modalities: tuple[str, ...] | None = None
    weights: WeightsForm | None = None
    pinned: bool = False
    replicas: int = 0
    replicas_target: int = 0
    version: str = ""
    unloads: int = 0
    will_retry: bool = False
    progress: LoadProgress | None = None
    has_any_name: bool = False
    adapters: AdapterTable = NO_ADAPTERS
