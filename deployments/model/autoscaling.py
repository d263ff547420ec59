"""Decides how many replicas a model should have, by the load of its engines.

Serve's controller runs the policy: nothing here may need torch.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from deployments.model.settings import Autoscaling

# How often replicas and callers report. Ray's default of 10 s would make every reaction that slow.
# Ray 2.60 reads none of the environment variables that should replace this setting.
REPORT_INTERVAL_S = 1.0
AVERAGE_WINDOW_S = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDemand:
    """The demand on one replica.

    requests: that it has, or that wait for it to wake.
    tokens: known ones of their sequences, prompt and output.
    usage: the share of its pages that these hold, 0 to 1.
    """

    requests: float = 0.0
    tokens: float = 0.0
    usage: float = 0.0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


class DemandPolicy:
    """A policy that keeps each replica within its target of tokens and pages.

    It asks for as many replicas as that takes. One stays while there is a request anywhere. All
    stay while one of them is not heard of: nobody knows what it has to do. While none runs, those
    that load go on, however long that takes. There are never more than requests, which can't be
    parted. Serve applies bounds and delays.
    """

    def __init__(self, target_tokens: float, target_usage: float) -> None:
        self._target_tokens = target_tokens
        self._target_usage = target_usage

    def __call__(self, ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        metrics = ctx.aggregated_metrics or {}
        wanted = max(
            _sum_metric(metrics, "tokens") / self._target_tokens,
            _sum_metric(metrics, "usage") / self._target_usage,
        )
        if requests := ctx.total_queued_requests + _sum_metric(metrics, "requests"):
            wanted = max(min(wanted, requests), 1.0)
        if len(metrics.get("requests", {})) < len(ctx.running_replicas):
            wanted = max(wanted, len(ctx.running_replicas))
        if not ctx.running_replicas:
            wanted = max(wanted, ctx.target_num_replicas)
        return math.ceil(wanted), dict(ctx.policy_state or {})


def _sum_metric(metrics: Mapping[str, Mapping[Any, float]], name: str) -> float:
    """Returns the sum over all replicas that have reported."""
    return sum(metrics.get(name, {}).values())


def autoscaling_config(settings: Autoscaling, is_new: bool = True) -> AutoscalingConfig:
    """`is_new`: nothing of the model is deployed. Raises ValueError for bounds that contradict each
    other.
    """
    # A new model is wanted now, so it begins with one replica. Serve would return to this number at
    # every change; without one it keeps the replicas that the load needs.
    first = 1 if is_new and settings.min_replicas == 0 else None
    return AutoscalingConfig(
        min_replicas=settings.min_replicas,
        initial_replicas=first,
        max_replicas=settings.max_replicas,
        upscale_delay_s=settings.upscale_delay_s,
        downscale_delay_s=settings.downscale_delay_s,
        metrics_interval_s=REPORT_INTERVAL_S,
        look_back_period_s=AVERAGE_WINDOW_S,
        policy=AutoscalingPolicy(
            policy_function=DemandPolicy,
            policy_kwargs={
                "target_tokens": settings.target_tokens,
                "target_usage": settings.target_usage,
            },
        ),
    )
