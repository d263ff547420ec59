"""Every option of one model, once: its name, its limits, its INI keys, what it means.

Arguments, presets and their checks are all made from this table, so that they can't differ.
"""

from dataclasses import fields

from deployments.engine.limits import ON_CPU, ON_GPU, EngineLimits
from deployments.model.settings import (
    Adapter,
    Autoscaling,
    ModelSettings,
    SamplingDefaults,
    check_settings,
)
from deployments.router.presets.engine_options import EngineOptions
from deployments.router.presets.served_adapters import read_adapters
from deployments.router.presets.serving_options import ServingOptions
from deployments.router.settings import Preset

DEFAULT_MAX_LORAS = 8  # of a model with adapters to choose from


class ModelOptions(EngineOptions, ServingOptions):
    """Of one model, those about serving first."""

    def given(self) -> dict[str, object]:
        """The options that somebody chose; all others have their defaults."""
        return self.model_dump(exclude_unset=True)

    def over(self, base: "ModelOptions") -> "ModelOptions":
        """These options over those of `base`."""
        given, below = self.given(), base.given()
        scaling, scaling_below = given.get("autoscaling"), below.get("autoscaling")
        if "num_replicas" in given:
            below.pop("autoscaling", None)
        elif isinstance(scaling, dict):
            below.pop("num_replicas", None)
        if isinstance(scaling, dict) and isinstance(scaling_below, dict):
            given["autoscaling"] = scaling_below | scaling
        return ModelOptions.model_validate(below | given)

    def preset(self, name: str, *, source: str, text: str = "") -> Preset:
        """Raises ValueError for options that contradict each other."""
        adapters = read_adapters(self.lora_modules)
        return Preset(
            settings=self._settings(name, max((one.rank for one in adapters), default=0)),
            aliases=tuple(dict.fromkeys(one for one in self.aliases if one != name)),
            tags=tuple(dict.fromkeys(self.tags)),
            load_on_startup=self.load_on_startup,
            pinned=self.pinned,
            source=source,
            text=text,
            served_adapters=adapters,
        )

    def _settings(self, name: str, lora_rank: int) -> ModelSettings:
        """`lora_rank` is the largest one of the adapters that requests choose; 0 without any."""
        if self.model is None:
            raise ValueError("no model is named: a directory or a hub id")
        settings = ModelSettings(
            name=name,
            path=self.model,
            num_replicas=self.num_replicas,
            autoscaling=self._autoscaling(),
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
            tensor_parallel=self.tensor_parallel,
            dtype=self.dtype,
            quantization=self.quantization,
            dialect=self.dialect,
            adapters=tuple(Adapter(path=a.path, scale=a.scale) for a in self.adapters),
            sampling=SamplingDefaults(
                **{one.name: getattr(self, one.name) for one in fields(SamplingDefaults)}
            ),
            sleep_idle_s=self.sleep_idle_s,
            sleep_weights=self.sleep_weights,
            stop_timeout_s=self.stop_timeout_s,
            limits=self._limits(lora_rank),
        )
        check_settings(settings)
        return settings

    def _limits(self, lora_rank: int) -> EngineLimits:
        given = {f.name: getattr(self, f.name) for f in fields(EngineLimits)}
        sized = ON_GPU if self.num_gpus else ON_CPU
        for name in ("max_running", "max_batch_tokens"):
            given[name] = given[name] or getattr(sized, name)
        given |= self._lora_limits(lora_rank)
        return EngineLimits(**given)

    def _lora_limits(self, rank: int) -> dict[str, int]:
        if rank and self.max_loras == 0:
            raise ValueError("lora-modules: with max-loras = 0 requests can't choose adapters")
        if self.max_lora_rank is not None and rank > self.max_lora_rank:
            raise ValueError(f"lora-modules: rank {rank} is over max-lora-rank")
        given = ("max_loras", self.max_loras), ("max_lora_rank", self.max_lora_rank)
        unset = {"max_loras": DEFAULT_MAX_LORAS if rank else 0}
        unset["max_lora_rank"] = max(ON_CPU.max_lora_rank, rank)
        return unset | {name: value for name, value in given if value is not None}

    def _autoscaling(self) -> Autoscaling | None:
        if self.autoscaling is None:
            return None
        if "num_replicas" in self.model_fields_set:
            raise ValueError("num_replicas is for a model without autoscaling: say one of the two")
        scaling = Autoscaling(**self.autoscaling.model_dump())
        if "max_replicas" not in self.autoscaling.model_fields_set and scaling.min_replicas == 1:
            raise ValueError("autoscaling between one replica and one: say max_replicas")
        if scaling.min_replicas > scaling.max_replicas:
            raise ValueError(
                f"min_replicas ({scaling.min_replicas}) is over "
                f"max_replicas ({scaling.max_replicas})"
            )
        return scaling
