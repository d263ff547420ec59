"""Sampling without an engine, as callers rely on it: strategies, their pipeline, and one shot."""

import torch

from deployments.contract.requests import SamplingParams
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.sampler import SamplingPipeline, default_pipeline, sample
from deployments.engine.sampling.strategy import BaseSamplingStrategy
from deployments.engine.sampling.temperature import TemperatureStrategy
from deployments.engine.sampling.truncation import TopKStrategy, TopPStrategy
from tests.engine.drive import GREEDY, request
from tests.engine.sampling.rows import CPU, task_of

LOGITS = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0, -2.0]])
PARAMS = SamplingParams(temperature=0.5, top_k=3, top_p=0.9, seed=7)


def test_a_pipeline_is_a_strategy_that_applies_temperature_then_top_k_then_top_p() -> None:
    parts: list[BaseSamplingStrategy] = [TemperatureStrategy(), TopKStrategy(), TopPStrategy()]
    rows = SamplingRows([task_of(PARAMS)], CPU)
    by_hand, by_pipeline, by_all = LOGITS.clone(), LOGITS.clone(), LOGITS.clone()
    for part in parts:
        part.apply(by_hand, rows)
    pipeline: BaseSamplingStrategy = SamplingPipeline(parts)
    pipeline.apply(by_pipeline, rows)
    default_pipeline().apply(by_all, rows)
    assert torch.equal(by_pipeline, by_hand)
    assert torch.equal(by_all, by_hand)
    # softmax([0, -2, -4]) is 0.867, 0.117, 0.016: two tokens reach 0.9.
    assert by_hand[0, :2].tolist() == [0.0, -2.0]
    assert by_hand[0, 2:].isinf().all()


def test_one_shot_samples_a_token_for_each_request_and_leaves_the_logits_as_they_were() -> None:
    logits = LOGITS.repeat(3, 1).bfloat16()
    requests = [
        request("greedy", [0]),
        request("banned", [0], SamplingParams(temperature=0, logit_bias=((0, float("-inf")),))),
        request("random", [0, 1], PARAMS, produced_ids=[2]),
    ]
    before = logits.clone()
    samples = sample(logits, requests)
    assert [drawn.token_id for drawn in samples[:2]] == [0, 1]
    assert torch.equal(logits, before)
    alone = default_pipeline().sample(LOGITS.clone(), [task_of(PARAMS, [0, 1], [2])])
    assert samples[2:] == alone


def test_one_shot_follows_what_a_request_has_said() -> None:
    repeating = SamplingParams(temperature=0, frequency_penalty=2)
    (first,) = sample(LOGITS, [request("r", [0], GREEDY)])
    (second,) = sample(LOGITS, [request("r", [0], repeating, produced_ids=[0])])
    assert (first.token_id, second.token_id) == (0, 1)
