"""A GPU's memory as an engine uses it: pages from what is left, weights placed and shrunk."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.build import find_execution
from deployments.engine.cache_sizing import cache_shape
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, move_to_device
from deployments.engine.loading.quantization import Quantization
from kv.layout import alike
from kv.storage import Storage
from tests.checkpoints import save_checkpoint, save_large
from tests.models import tiny_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GREEDY = SamplingParams(temperature=0)


def generate(core: EngineCore, n: int = 16) -> list[int]:
    request = GenerationRequest(
        request_id="r", prompt_ids=tuple(range(40, 80)), sampling=GREEDY, max_tokens=n
    )
    produced: list[int] = []
    for _, event in core.run([request]):
        assert event.error is None
        produced.extend(event.token_ids)
    return produced


@pytest.mark.parametrize("utilization", [0.2, 0.6])
def test_pages_fill_the_share_of_the_device_and_leave_the_rest(utilization: float) -> None:
    limits = EngineLimits(max_running=4096, gpu_memory_utilization=utilization)
    config = LlamaConfig(  # 32 KiB a token: its sequences want more than any device has
        vocab_size=128, hidden_size=64, intermediate_size=64, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=8, head_dim=128, max_position_embeddings=4096,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to("cuda")
    loaded = LoadedModel(model)
    shape = cache_shape(loaded, find_execution(loaded), limits)
    page = Storage.page_bytes(alike(8, 8, 128), limits.page_size, model.dtype)
    total = torch.cuda.mem_get_info()[1]
    assert 0.5 * utilization * total < shape.n_pages * page <= utilization * total


def test_the_largest_batch_runs_beside_pages_that_fill_the_device() -> None:
    limits = EngineLimits(max_running=512, max_batch_tokens=4096, gpu_memory_utilization=0.9)
    core = EngineCore(LoadedModel(tiny_model().to("cuda")), frozenset(), limits)
    requests = [
        GenerationRequest(request_id=f"r{i}", prompt_ids=(i % 100,) * 400, max_tokens=4)
        for i in range(512)
    ]
    try:
        assert all(event.error is None for _, event in core.run(requests))
    finally:
        core.shutdown()


def test_weights_on_a_gpu_are_those_of_the_files(tmp_path: Path) -> None:
    save_large(tmp_path)
    progress: list[float] = []
    for dtype in (torch.float32, torch.bfloat16):
        there = load_model(
            str(tmp_path), dtype=dtype, device="cuda", on_copy_progress=progress.append
        )
        here = load_model(str(tmp_path), dtype=dtype)
        assert progress == sorted(progress)
        assert progress[-1] == 1.0
        progress.clear()
        expected = here.model.state_dict()
        for name, weight in there.model.state_dict().items():
            assert weight.device.type == "cuda"
            assert torch.equal(weight.cpu(), expected[name]), name
        for (name, buffer), (_, other) in zip(
            there.model.named_buffers(), here.model.named_buffers(), strict=True
        ):
            assert torch.equal(buffer.cpu(), other), name


def test_tied_weights_are_placed_once() -> None:
    config = LlamaConfig(
        vocab_size=4096, hidden_size=64, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=64, tie_word_embeddings=True,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    move_to_device(model, "cuda")
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert {weight.device.type for weight in model.parameters()} == {"cuda"}


@pytest.mark.parametrize("quantization", ["int8", "int4", "fp8"])
def test_quantized_weights_answer_sleep_in_host_memory_and_answer_the_same(
    quantization: Quantization, tmp_path: Path
) -> None:
    save_large(tmp_path)
    model = load_model(
        str(tmp_path), dtype=torch.bfloat16, device="cuda", quantization=quantization
    )
    limits = EngineLimits(n_pages=64, max_running=4, context_length=256)
    answers = []
    for _ in range(2):
        core = EngineCore(model, frozenset(), limits)
        answers.append(generate(core))
        core.shutdown()
        model.to("cpu")
        tensors = (*model.model.parameters(), *model.model.buffers())
        assert not any(tensor.is_cuda for tensor in tensors)
        model.to("cuda")
    assert answers[0] == answers[1]
    assert len(answers[0]) == 16


def test_a_quantized_model_is_loaded_without_the_whole_being_on_the_device(
    tmp_path: Path,
) -> None:
    whole = save_large(tmp_path) // 2  # in bfloat16
    save_checkpoint(tmp_path / "small")
    load_model(str(tmp_path / "small"), device="cuda", quantization="int8")  # whatever torch keeps
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model = load_model(str(tmp_path), dtype=torch.bfloat16, device="cuda", quantization="int8")
    assert torch.cuda.max_memory_allocated() - before < 0.9 * whole
    assert model.device.type == "cuda"
