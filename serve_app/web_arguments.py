"""The `args` of the application `web` in `serve.yaml`, checked once at start."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from deployments.ingress.settings import IngressSettings
from deployments.router.presets.strict_options import Unset
from deployments.store.limits import StoreLimits
from deployments.web.settings import WebSettings
from serve_app.ingress_arguments import HttpArguments, StoreUrl

# The browser asks it with its scheme: what else a Content-Security-Policy takes would open more.
ConnectOrigin = Annotated[
    str, Field(pattern=r"^https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?$")
]
SOURCES = Path(__file__).parent / "web"
LIMITS = StoreLimits()


class WebArguments(HttpArguments):
    """Arguments of the application `web`."""

    store: StoreUrl = Field(
        default=None,
        repr=False,  # it may have a password
        description="URL of the database of chats and files: `sqlite:////PATH`, or "
        "`postgresql://USER:PASSWORD@HOST/NAME`. With `none` chats stay in browsers",
    )
    max_owner_bytes: int = Field(
        default=LIMITS.max_owner_bytes,
        ge=1,
        description="Bytes that an owner may store in all: chats and files. More is a 507",
    )
    max_file_bytes: int = Field(
        default=LIMITS.max_file_bytes, ge=1, description="Bytes of a file. More is a 413"
    )
    max_message_bytes: int = Field(
        default=LIMITS.max_message_bytes,
        ge=1,
        description="Bytes of a message, or of a chat without its messages. More is a 413",
    )
    max_chats: int = Field(
        default=LIMITS.max_chats, ge=1, description="Chats of an owner. More is a 413"
    )
    max_messages: int = Field(
        default=LIMITS.max_messages, ge=1, description="Messages of a chat. More is a 413"
    )
    defaults: Annotated[dict[str, JsonValue], Unset("none")] = Field(
        default={},
        description="Settings of the page for who has not changed them, by the names that its "
        "export of settings has",
    )

    connect_origins: tuple[ConnectOrigin, ...] = Field(
        default=(),
        description="Origins of MCP servers, such as `https://tools.example.org`, that the page "
        "may ask beside its own: browsers refuse it all others",
    )

    @model_validator(mode="after")
    def _one_of_each_fits(self) -> Self:
        if self.max_message_bytes > self.max_body_bytes:
            raise ValueError("max_message_bytes: must be at most max_body_bytes")
        if self.max_file_bytes > self.max_inflight_body_bytes * 8 // 9:
            raise ValueError(
                "max_inflight_body_bytes: must be at least 9/8 of max_file_bytes, because one "
                "client has 8 of 9 at most"
            )
        return self

    def ingress_settings(self) -> IngressSettings:
        """Raises ValueError for keys that can't be used."""
        known = self.known_keys()
        return IngressSettings(
            body_limit=self.max_body_bytes,
            body_budget=self.max_inflight_body_bytes,
            body_timeout_s=self.body_timeout_s,
            api_keys=known.keys,
            key_owners=known.owners,
            hosts=self.known_hosts(),
            stop_timeout_s=self.stop_timeout_s,
        )

    def settings(self) -> tuple[object, ...]:
        """Returns the arguments of its deployment. Raises ValueError for what can't be used."""
        return (self.ingress_settings(), self.web_settings())

    def web_settings(self) -> WebSettings:
        limits = {field.name: getattr(self, field.name) for field in fields(StoreLimits)}
        return WebSettings(
            page=str(SOURCES / "dist"),
            why_no_page=str(SOURCES / "build_failure.txt"),
            store=self.store,
            limits=StoreLimits(**limits),
            defaults=self.defaults,
            connect_origins=self.connect_origins,
        )
