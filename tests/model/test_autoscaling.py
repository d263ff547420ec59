"""How many replicas a model should have, for what its engines say they have to do."""

import math
import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.model.autoscaling import DemandPolicy, ReplicaDemand, autoscaling_config
from deployments.model.settings import Autoscaling

POLICY = DemandPolicy(target_tokens=1000, target_usage=0.5)


def wanted(*demands: ReplicaDemand, queued: float = 0.0, n_silent: int = 0, target: int = 0) -> int:
    metrics = {
        name: {f"replica-{n}": demand.as_dict()[name] for n, demand in enumerate(demands)}
        for name in ReplicaDemand().as_dict()
    }
    state = {"of": "Serve"}
    context = SimpleNamespace(
        aggregated_metrics=metrics,
        total_queued_requests=queued,
        policy_state=state,
        running_replicas=[f"replica-{n}" for n in range(len(demands) + n_silent)],
        target_num_replicas=target,
    )
    replicas, kept = POLICY(context)
    assert kept == state
    return replicas


def busy(tokens: float, usage: float = 0.0, requests: float = 1e4) -> ReplicaDemand:
    return ReplicaDemand(requests=requests, tokens=tokens, usage=usage)


def test_nothing_to_do_takes_no_replica() -> None:
    assert wanted(ReplicaDemand(), ReplicaDemand()) == 0
    assert wanted() == 0


def test_one_request_keeps_one_replica_wherever_it_waits() -> None:
    assert wanted(busy(1)) == 1
    assert wanted(ReplicaDemand(requests=1)) == 1  # its engine is waking
    assert wanted(queued=0.1) == 1  # on average, at a caller


def test_tokens_and_pages_both_ask_for_replicas() -> None:
    assert wanted(busy(1000)) == 1
    assert wanted(busy(1001)) == 2
    assert wanted(busy(1500), busy(1500)) == 3
    assert wanted(busy(100, usage=0.9), busy(100, usage=0.9)) == 4


def test_one_request_takes_no_more_than_one_replica() -> None:
    assert wanted(busy(60_000, usage=0.9, requests=1)) == 1
    assert wanted(busy(60_000, usage=0.9, requests=1), queued=2) == 3


def test_none_goes_while_nobody_knows_what_one_of_them_does() -> None:
    assert wanted(busy(1), n_silent=2) == 3
    assert wanted(busy(4500), n_silent=2) == 5  # but others may come
    assert wanted(ReplicaDemand(), ReplicaDemand(), n_silent=0) == 0


def test_what_loads_is_not_stopped_before_it_runs() -> None:
    assert wanted(target=1) == 1
    assert wanted(target=3, queued=1) == 3
    assert wanted(ReplicaDemand(), target=1) == 0  # it runs, and nobody wants it
    assert wanted(target=0) == 0


def test_a_controller_that_has_heard_nothing_at_all_serves_who_waits() -> None:
    context = SimpleNamespace(
        aggregated_metrics=None,
        total_queued_requests=3,
        policy_state=None,
        running_replicas=[],
        target_num_replicas=0,
    )
    assert POLICY(context) == (1, {})


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1)), max_size=8),
    st.floats(0, 1e6),
    st.floats(0, 1),
)
def test_more_to_do_never_takes_fewer_replicas(
    loads: list[tuple[float, float]], tokens: float, usage: float
) -> None:
    before = wanted(*(busy(*load) for load in loads))
    after = wanted(*(busy(*load) for load in loads), busy(tokens, usage))
    assert max(before, math.ceil(tokens / 1000)) <= after


def test_what_is_set_reaches_serve() -> None:
    config = autoscaling_config(
        Autoscaling(min_replicas=0, max_replicas=5, upscale_delay_s=1, downscale_delay_s=2)
    )
    assert (config.min_replicas, config.initial_replicas, config.max_replicas) == (0, 1, 5)
    assert (config.upscale_delay_s, config.downscale_delay_s) == (1, 2)
    assert config.look_back_period_s > config.metrics_interval_s
    assert config.policy.policy_kwargs == {"target_tokens": 8192, "target_usage": 0.8}


def test_only_a_new_model_that_may_have_no_replica_is_given_a_first_one() -> None:
    scaled_to_zero, others = (
        Autoscaling(min_replicas=0),
        Autoscaling(min_replicas=2, max_replicas=4),
    )
    assert autoscaling_config(scaled_to_zero).initial_replicas == 1
    assert autoscaling_config(scaled_to_zero, is_new=False).initial_replicas is None
    assert autoscaling_config(others).initial_replicas is None


def test_bounds_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="max_replicas"):
        autoscaling_config(Autoscaling(min_replicas=3, max_replicas=2))


def test_serves_controller_needs_neither_torch_nor_this_package_for_the_policy() -> None:
    packed = autoscaling_config(Autoscaling()).policy.get_serialized_policy_def()
    assert packed is not None
    code = (
        "import pickle, sys\n"
        f"policy = pickle.loads({packed!r})(target_tokens=10, target_usage=1)\n"
        "assert policy.__class__.__name__ == 'DemandPolicy'\n"
        "assert not {'torch', 'deployments'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
    assert pickle.loads(packed)(target_tokens=10, target_usage=1)
