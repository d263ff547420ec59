"""The settings of the application `web`; read once, at the root."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from deployments.store.database import NO_STORE
from deployments.store.limits import StoreLimits

WEB = "web"  # the application and its deployment: by this name `llama` finds them
PREFIX = "/ui"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """page: the folder of the built page, which may come to be while the server runs.
    why_no_page: a file that says why the installation built none, where it wrote one.
    store: its URL, NO_STORE, or None for a file in the user's data folder.
    limits: of each owner.
    defaults: settings of the page for new users.
    connect_origins: of servers that the page may ask beside this one.
    """

    page: str
    why_no_page: str
    store: str | None = field(default=NO_STORE, repr=False)  # it may have a password
    limits: StoreLimits = field(default_factory=StoreLimits)
    defaults: Mapping[str, JsonValue] = field(default_factory=dict)
    connect_origins: tuple[str, ...] = ()
