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
        return Preset(
            settings=self._settings(name),
            aliases=tuple(dict.fromkeys(one for one in self.aliases if one != name)),
            tags=tuple(dict.fromkeys(self.tags)),
            load_on_startup=self.load_on_startup,
            pinned=self.pinned,
            source=source,
            text=text,
            served_adapters=read_adapters(self.lora_modules),
        )

    def _settings(self, name: str) -> ModelSettings:
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
            limits=self._limits(),
        )
        check_settings(settings)
        return settings

    def _limits(self) -> EngineLimits:
        given = {f.name: getattr(self, f.name) for f in fields(EngineLimits)}
        sized = ON_GPU if self.num_gpus else ON_CPU
        for name in ("max_running", "max_batch_tokens"):
            given[name] = given[name] or getattr(sized, name)
        return EngineLimits(**given)

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
