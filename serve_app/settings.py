"""What `serve.yaml` may say under `args`, checked once at start."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from deployments.engine.limits import EngineLimits
from deployments.ingress.body import BODY_LIMIT, BODY_TIMEOUT_S
from deployments.ingress.settings import KEEP_ALIVE_S, IngressSettings
from deployments.llama.tools.settings import ToolSettings
from deployments.model.settings import ModelSettings
from deployments.text.dialects.registry import DIALECTS
from serve_app.keys import VARIABLE as KEYS_VARIABLE
from serve_app.keys import api_keys

DEMO_MODEL = Path(__file__).parent / "demo" / "model"
DEMO_NAME = "manta-demo"
LIMITS = EngineLimits()
LIMIT_FIELDS = fields(EngineLimits)
# As a browser writes it: lower case, and no slash at the end.
Origin = Annotated[str, Field(pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^\s/A-Z]+)$")]


def _known_dialect(name: str) -> str:
    if name and name not in DIALECTS:
        raise ValueError(f"must be one of {', '.join(sorted(DIALECTS))}")
    return name


class Arguments(BaseModel):
    """Unknown names are errors: a misspelt setting must not be silently off."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RouterArguments(Arguments):
    """Of the application `router`; EngineLimits and ModelSettings say what they mean."""

    model: str | None = Field(
        default=None, description="Directory or hub id; the demo model without it"
    )
    name: str | None = Field(
        default=None, description="What clients call it; from `model` without it"
    )
    num_replicas: int = Field(default=1, ge=1)
    num_cpus: float | None = Field(default=None, gt=0)
    num_gpus: float | None = Field(default=None, ge=0)
    dtype: Literal["bfloat16", "float16", "float32"] | None = None
    dialect: Annotated[str, AfterValidator(_known_dialect)] = Field(
        default="", description="How it writes tool calls; by its chat template without it"
    )
    page_size: int = Field(default=LIMITS.page_size, ge=1, le=1024)
    n_pages: int | None = Field(default=LIMITS.n_pages, ge=2)
    kv_gib: float = Field(default=LIMITS.kv_gib, gt=0)
    context_length: int | None = Field(default=LIMITS.context_length, ge=2)
    max_running: int = Field(default=LIMITS.max_running, ge=1)
    max_batch_tokens: int = Field(default=LIMITS.max_batch_tokens, ge=1)
    max_waiting: int = Field(default=LIMITS.max_waiting, ge=1)
    max_stuck_s: float = Field(default=LIMITS.max_stuck_s, gt=0)

    def model_settings(self) -> ModelSettings:
        """Raises ValueError for a model that can't be there."""
        own_name = DEMO_NAME if self.model is None else _name(self.model)
        return ModelSettings(
            name=self.name or own_name,
            path=str(DEMO_MODEL) if self.model is None else _resolve(self.model),
            num_replicas=self.num_replicas,
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
            dtype=self.dtype,
            dialect=self.dialect,
            limits=EngineLimits(
                **{field.name: getattr(self, field.name) for field in LIMIT_FIELDS}
            ),
        )


class IngressArguments(Arguments):
    """Of the applications `openai`, `anthropic` and `llama`."""

    model_config = ConfigDict(hide_input_in_errors=True)  # keys are no matter for logs

    keep_alive_s: float = Field(
        default=KEEP_ALIVE_S, gt=0, description="Silence before a comment on a stream"
    )
    max_body_bytes: int = Field(default=BODY_LIMIT, ge=1)
    body_timeout_s: float = Field(default=BODY_TIMEOUT_S, gt=0, description="For a body to arrive")
    request_timeout_s: float | None = Field(
        default=None, gt=0, description="For the whole of an answer; no limit without it"
    )
    api_keys: tuple[SecretStr, ...] = Field(
        default=(), description="Any of them opens; without keys everybody may enter"
    )
    api_key_file: str | None = Field(
        default=None,
        description=f"More keys, one a line. With neither, {KEYS_VARIABLE} may list some, by comma",
    )
    cors_origins: tuple[Origin, ...] = Field(
        default=(), description='Pages of these origins may ask; "*" stands for all'
    )

    def ingress_settings(self) -> IngressSettings:
        """Raises ValueError for keys that can't be used."""
        return IngressSettings(
            keep_alive_s=self.keep_alive_s,
            body_limit=self.max_body_bytes,
            body_timeout_s=self.body_timeout_s,
            request_timeout_s=self.request_timeout_s,
            api_keys=api_keys([k.get_secret_value() for k in self.api_keys], self.api_key_file),
            cors_origins=self.cors_origins,
        )


class LlamaArguments(IngressArguments):
    """Of the application `llama`."""

    tools_folder: str | None = Field(
        default=None, description="All that the built-in tools may touch; without it they are off"
    )
    tools_hosts: tuple[str, ...] = Field(
        default=(), description="Names by which the tools are asked, beside localhost"
    )

    def tool_settings(self) -> ToolSettings | None:
        """Raises ValueError for a folder that is none."""
        if self.tools_folder is None:
            return None
        folder = Path(self.tools_folder).expanduser()
        if not folder.is_dir():
            raise ValueError(f"there is no directory {folder}")
        hosts = tuple(host.lower() for host in self.tools_hosts)
        return ToolSettings(folder=str(folder.resolve()), hosts=hosts)


def _resolve(model: str) -> str:
    """A directory by its full path, because replicas run elsewhere; a hub id as it is."""
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"{path} has no config.json: it is no model")
        return str(path.resolve())
    if model.startswith((".", "/", "~")):
        raise ValueError(f"there is no directory {path}")
    return model


def _name(model: str) -> str:
    path = Path(model).expanduser()
    return path.resolve().name if path.is_dir() else model
