"""States take the memory of the slots that are used, as long as an engine has the model."""

import gc
import weakref
from pathlib import Path

import pytest
import torch

from deployments.engine.forward.forward import DecoderForward
from deployments.engine.forward.recurrent import can_keep_states
from deployments.engine.forward.state_pool import StatePool
from tests.engine.drive import engine, random_ids, request, roomy
from tests.models import tiny_model

PAGE_BYTES = 4096
MIB = 1 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def test_slots_that_are_not_used_take_no_memory_of_a_cpu() -> None:
    state = torch.ones(1, MIB // 4)
    pool, before = StatePool(2048), resident_bytes()
    pool.write(torch.tensor([7]), {("recurrent", 0, 0): state})
    assert resident_bytes() - before < 64 * MIB
    found = pool.rows(torch.tensor([7, 2048])).get(("recurrent", 0, 0))
    assert found is not None
    assert torch.equal(found, torch.cat([state, torch.zeros_like(state)]))


@pytest.mark.skipif(not can_keep_states(), reason="needs a newer transformers")
def test_a_model_that_sleeps_has_no_states() -> None:
    model = tiny_model("mamba2")
    with engine(model=model, limits=roomy()) as running:
        running.run(request("r", random_ids(9), max_tokens=2))
        forward = running.core._scheduler._runner._forward
        assert isinstance(forward, DecoderForward)
        assert forward._recurrent is not None
        pool = weakref.ref(forward._recurrent._pool)
    del running, forward
    gc.collect()
    assert pool() is None
    token_ids = torch.tensor([[1, 2, 3]], device=model.device)
    assert model(token_ids, use_cache=False).logits.isfinite().all()
