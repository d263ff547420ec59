"""How one model is served. Free of torch: routers and builders read it too."""

import re
from dataclasses import dataclass, field

from deployments.engine.limits import EngineLimits

MODEL_DEPLOYMENT = "MantaModel"  # a name that no application of others has


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """`path` is a directory or a hub id. None leaves the choice to the replica and its node.

    num_cpus: cores of a replica, and so the threads of its arithmetic.
    dialect: how it writes thoughts and calls of tools; "" for what its chat template says.
    """

    name: str
    path: str
    num_replicas: int = 1
    num_cpus: float | None = None
    num_gpus: float | None = None
    dtype: str | None = None
    dialect: str = ""
    limits: EngineLimits = field(default_factory=EngineLimits)

    @property
    def application(self) -> str:
        """The Serve application of this model."""
        return application_name(self.name)


PREFIX = "model-"


def application_name(model: str) -> str:
    return PREFIX + re.sub(r"[^A-Za-z0-9._-]", "_", model)


def is_model_application(name: str) -> bool:
    return name.startswith(PREFIX)
