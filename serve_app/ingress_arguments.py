"""The `args` of an ingress in `serve.yaml`, checked once at start."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator

from deployments.ingress.settings import (
    BODY_BUDGET,
    BODY_LIMIT,
    BODY_TIMEOUT_S,
    KEEP_ALIVE_S,
    LOAD_TIMEOUT_S,
    MAX_INFLIGHT,
    STOP_TIMEOUT_S,
    IngressSettings,
)
from deployments.llama.tools.settings import ToolSettings
from deployments.media.settings import (
    FETCH_TIMEOUT_S,
    MAX_AUDIO_S,
    MAX_MEDIA,
    MAX_MEDIUM_BYTES,
    MAX_PAGES,
    MAX_PIXELS,
    MediaSettings,
)
from deployments.router.presets.strict_options import StrictOptions, Unset
from deployments.store.database import NO_STORE, store_url
from serve_app.api_keys import VARIABLE as KEYS_VARIABLE
from serve_app.api_keys import ApiKeys, api_keys
from serve_app.encryption_key import MIN_LENGTH, encryption_key
from serve_app.encryption_key import VARIABLE as ENCRYPTION_VARIABLE

# As a browser writes it: lower case, and no slash at the end.
Origin = Annotated[str, Field(pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^\s/A-Z]+)$")]


def _known_store(store: str | None) -> str | None:
    if store not in (None, NO_STORE):
        store_url(store)
    return store


StoreUrl = Annotated[str | None, Unset("a SQLite file at home"), AfterValidator(_known_store)]


class HttpArguments(StrictOptions):
    """Arguments of all applications with HTTP."""

    model_config = ConfigDict(hide_input_in_errors=True)  # keys are no matter for logs

    max_body_bytes: int = Field(
        default=BODY_LIMIT, ge=1, description="Bytes of a request's body. More is a 413"
    )
    max_inflight_body_bytes: int = Field(
        default=BODY_BUDGET,
        ge=1,
        description="Bytes of the bodies of all requests that one ingress process answers, and of "
        "the stored items that they continue. More are refused as overload, and one client has 8 "
        "of 9 at most. 64 KiB of each are free",
    )
    body_timeout_s: float = Field(
        default=BODY_TIMEOUT_S, gt=0, description="Seconds for a body to arrive, else 408"
    )
    api_keys: tuple[SecretStr, ...] = Field(
        default=(), description="Clients have to send one of these. Without keys the server is open"
    )
    api_key_file: Annotated[str | None, Unset("none")] = Field(
        default=None,
        description="File with more keys, one a line, as `KEY` or `NAME KEY`. With a name, what is "
        "stored belongs to the name, and its key may be replaced. With neither, the environment "
        f"variable {KEYS_VARIABLE} may list some, separated by commas",
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="Names of the server. Without keys it answers to these alone, and to "
        "addresses, `localhost` and the `host` of `http_options`, else 421. With 0.0.0.0 there it "
        "answers to all",
    )

    stop_timeout_s: float = Field(
        default=STOP_TIMEOUT_S,
        ge=0,
        description="Seconds for answers to end when `serve run` is told to stop. Those that have "
        "not then end with an error",
    )

    @model_validator(mode="after")
    def _one_body_fits(self) -> Self:
        if self.max_body_bytes > self.max_inflight_body_bytes * 8 // 9:
            raise ValueError(
                "max_inflight_body_bytes: must be at least 9/8 of max_body_bytes, because one "
                "client has 8 of 9 at most"
            )
        return self

    def known_keys(self) -> ApiKeys:
        """Raises ValueError for keys that can't be used."""
        return api_keys([key.get_secret_value() for key in self.api_keys], self.api_key_file)

    def known_hosts(self) -> tuple[str, ...]:
        return tuple(host.lower() for host in self.hosts)


class IngressArguments(HttpArguments):
    """Arguments of the applications `openai`, `anthropic` and `llama`, which generate."""

    keep_alive_s: float = Field(
        default=KEEP_ALIVE_S,
        gt=0,
        description="Seconds of silence before a comment (Anthropic: a ping) on a stream",
    )
    request_timeout_s: Annotated[float | None, Unset("no limit")] = Field(
        default=None,
        gt=0,
        description="Seconds for a whole answer, else 504, or an error event in a stream",
    )
    load_timeout_s: float = Field(
        default=LOAD_TIMEOUT_S,
        gt=0,
        description="Seconds that a request waits for its model to load",
    )
    max_inflight: int = Field(
        default=MAX_INFLIGHT,
        ge=1,
        description="Requests of one ingress process at once. More are refused as overload, "
        "and one client has 8 of 9 places at most",
    )
    priority_orders_all: bool = Field(
        default=False,
        description="Whether a request's `priority` puts it before other clients' requests, too. "
        "Else it orders each client's own",
    )
    shared_prefixes: bool = Field(
        default=False,
        description="Whether a key's requests find the cached prefixes of another key's. It saves "
        "time where all have one system prompt, and lets one guess at another's prompts",
    )
    encryption_key_file: Annotated[str | None, Unset("`~/.manta/encryption_key`")] = Field(
        default=None,
        description="File with the secret that encrypts the thoughts that clients keep "
        f"(`encrypted_content`), of {MIN_LENGTH} characters or more. Without it the environment "
        f"variable {ENCRYPTION_VARIABLE} counts",
    )
    cors_origins: tuple[Origin, ...] = Field(
        default=(), description='Origins whose web pages may send requests. "*" is all'
    )

    max_media: int = Field(
        default=MAX_MEDIA,
        ge=0,
        description="Images, sounds and pages of documents in a request. More are a 400",
    )
    max_medium_bytes: int = Field(
        default=MAX_MEDIUM_BYTES, ge=1, description="Bytes of one image, sound or document"
    )
    max_image_pixels: int = Field(default=MAX_PIXELS, ge=1, description="Pixels of an image")
    max_audio_s: float = Field(default=MAX_AUDIO_S, gt=0, description="Seconds of a sound")
    max_document_pages: int = Field(default=MAX_PAGES, ge=1, description="Pages of a document")
    media_timeout_s: float = Field(
        default=FETCH_TIMEOUT_S,
        gt=0,
        description="Seconds to fetch the file of a URL, and to decode a file",
    )
    media_hosts: tuple[str, ...] = Field(
        default=(),
        description="Hosts that files may be fetched from, as `NAME` or `NAME:PORT`: no others, "
        "and none at all by default. `*` is all. A name with a private address is refused; an "
        "address that stands here may be private",
    )

    def settings(self) -> tuple[object, ...]:
        """Returns the arguments of its deployment. Raises ValueError for what can't be used."""
        return (self.ingress_settings(),)

    def media_settings(self, folder: str | None = None) -> MediaSettings:
        return MediaSettings(
            max_media=self.max_media,
            max_bytes=self.max_medium_bytes,
            max_pixels=self.max_image_pixels,
            max_audio_s=self.max_audio_s,
            max_pages=self.max_document_pages,
            fetch_timeout_s=self.media_timeout_s,
            decode_timeout_s=self.media_timeout_s,
            hosts=tuple(host.lower() for host in self.media_hosts),
            folder=folder,
        )

    def ingress_settings(self) -> IngressSettings:
        """Raises ValueError for keys that can't be used. `encryption_key` may make a file."""
        known = self.known_keys()
        return IngressSettings(
            keep_alive_s=self.keep_alive_s,
            body_limit=self.max_body_bytes,
            body_budget=self.max_inflight_body_bytes,
            body_timeout_s=self.body_timeout_s,
            request_timeout_s=self.request_timeout_s,
            api_keys=known.keys,
            key_owners=known.owners,
            priority_orders_all=self.priority_orders_all,
            shared_prefixes=self.shared_prefixes,
            encryption_key=encryption_key(self.encryption_key_file),
            hosts=self.known_hosts(),
            stop_timeout_s=self.stop_timeout_s,
            cors_origins=self.cors_origins,
            load_timeout_s=self.load_timeout_s,
            max_inflight=self.max_inflight,
            media=self.media_settings(),
        )


class OpenAIArguments(IngressArguments):
    """Arguments of the applications that answer `/v1/responses`: `openai` and `llama`."""

    store: StoreUrl = Field(
        default=None,
        repr=False,  # it may have a password
        description="URL of the database of responses and conversations: `sqlite:////PATH`, or "
        "`postgresql://USER:PASSWORD@HOST/NAME`. With `none` responses are in the memory of one "
        "process",
    )

    def settings(self) -> tuple[object, ...]:
        return (self.ingress_settings(), self.store)


class LlamaArguments(OpenAIArguments):
    """Arguments of the application `llama`."""

    tools_folder: Annotated[str | None, Unset("off")] = Field(
        default=None,
        min_length=1,  # else it would be wherever the server was started
        description="The one folder that `GET` and `POST /tools` read and write",
    )
    media_folder: Annotated[str | None, Unset("off")] = Field(
        default=None,
        min_length=1,
        description="The one folder that `file://` URLs of images, sounds and documents are below",
    )
    tools_hosts: tuple[str, ...] = Field(
        default=(),
        description="Host names, beside addresses and `localhost`, under which pages use `/tools`",
    )

    def ingress_settings(self) -> IngressSettings:
        """Raises ValueError for a media folder that does not exist, too."""
        settings = super().ingress_settings()
        if self.media_folder is None:
            return settings
        folder = Path(self.media_folder).expanduser()
        if not folder.is_dir():
            raise ValueError(f"there is no directory {folder}")
        return replace(settings, media=self.media_settings(str(folder.resolve())))

    def settings(self) -> tuple[object, ...]:
        return (self.ingress_settings(), self.tool_settings(), self.store)

    def tool_settings(self) -> ToolSettings | None:
        """Raises ValueError for a folder that does not exist, or for hosts without a folder."""
        if self.tools_folder is None and self.tools_hosts:
            raise ValueError("tools_hosts: the tools are off, as no tools_folder is said beside it")
        if self.tools_folder is None:
            return None
        folder = Path(self.tools_folder).expanduser()
        if not folder.is_dir():
            raise ValueError(f"there is no directory {folder}")
        hosts = tuple(host.lower() for host in self.tools_hosts)
        return ToolSettings(folder=str(folder.resolve()), hosts=hosts)
