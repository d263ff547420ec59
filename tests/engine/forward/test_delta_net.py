"""Models with gated delta nets on a CPU, in bfloat16: their decodes and drafts are recorded."""

from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel, Qwen3_5TextConfig

from deployments.contract.requests import SamplingParams
from deployments.engine.forward.decoder import FusedDecoder
from deployments.engine.forward.forward import DecoderForward
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.limits import EngineLimits
from tests.engine import laws
from tests.engine.drive import Engine, random_ids, request, roomy
from tests.engine.workload import Workload
from tests.models import SIZES, from_config

pytestmark = pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
CONFIG = Qwen3_5TextConfig(
    **{**SIZES, "hidden_size": 64, "num_hidden_layers": 4, "head_dim": 16},
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    linear_num_key_heads=4,
    linear_num_value_heads=4,
)


def model() -> PreTrainedModel:
    """One that nearly goes by the last token alone, and so repeats itself."""
    made = from_config(CONFIG)
    for name, weight in made.named_parameters():
        if "o_proj" in name or "out_proj" in name:
            weight.data.mul_(0.01)
    return made.to(torch.bfloat16)


def drafted(limits: EngineLimits) -> Workload:
    samplings = [SamplingParams(temperature=heat, seed=5) for heat in (0, 0.3)]
    requests = [
        request("r", random_ids(5 + number) * 3, sampling, max_tokens=30)
        for number, sampling in enumerate(samplings)
    ]
    return Workload(requests=requests, model=model, limits=limits, n_drafted=1)


def is_recorded(running: Engine) -> bool:
    forward = running.core._scheduler._runner._forward
    assert isinstance(forward, DecoderForward)
    assert isinstance(forward._decode, FusedDecoder)
    return any(forward._decode._layers._recordings.values())


def test_drafts_and_other_rows_change_no_token_and_all_is_recorded() -> None:
    """Prompts are as long alone as beside others, and so rounded alike."""
    workload = drafted(roomy(max_batch_tokens=512))
    laws.drafted_is_plain(workload)
    with replace(workload, reference=lambda: workload.undisturbed).engine() as running:
        workload.check([running.run(req)[0] for req in workload.apart()])
        assert is_recorded(running)
