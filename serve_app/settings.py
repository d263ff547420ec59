"""What `serve.yaml` may say under `args`, checked once at start."""

from dataclasses import fields
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from deployments.engine.limits import EngineLimits
from deployments.ingress.body import BODY_LIMIT
from deployments.ingress.settings import KEEP_ALIVE_S, IngressSettings
from deployments.model.settings import ModelSettings

DEMO_MODEL = Path(__file__).parent / "demo" / "model"
DEMO_NAME = "manta-demo"
LIMITS = EngineLimits()
LIMIT_FIELDS = fields(EngineLimits)


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
            limits=EngineLimits(
                **{field.name: getattr(self, field.name) for field in LIMIT_FIELDS}
            ),
        )


class IngressArguments(Arguments):
    """Of the applications `openai`, `anthropic` and `llama`."""

    keep_alive_s: float = Field(
        default=KEEP_ALIVE_S, gt=0, description="Silence before a comment on a stream"
    )
    max_body_bytes: int = Field(default=BODY_LIMIT, ge=1)

    def ingress_settings(self) -> IngressSettings:
        return IngressSettings(keep_alive_s=self.keep_alive_s, body_limit=self.max_body_bytes)


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
