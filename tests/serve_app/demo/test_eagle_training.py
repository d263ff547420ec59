"""A head is trained in the passes that the engine makes with it."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from deployments.engine.loading.draft_heads.head_files import load_head
from serve_app.demo.model_files import load
from serve_app.demo.training.batches import steps
from serve_app.demo.training.corpus.skills import LATE
from serve_app.demo.training.eagle import SHAPE, Before, HeadNetwork, export, shifted, teach
from tests.engine.loading.test_draft_heads import WholeAttention


@torch.inference_mode()
def test_a_pass_reads_the_models_states_and_its_own_as_the_engine_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.demo.training.network.precision", lambda device: torch.float32)
    model, tokenizer = load()
    model = model.float()
    network = HeadNetwork(SHAPE, model, seed=3)
    for weight in network.parameters():
        weight.copy_(torch.randn_like(weight).mul_(weight.shape[-1] ** -0.5).bfloat16())
    export(network, tokenizer, tmp_path / "head")
    head = load_head(str(tmp_path / "head"), torch.float32, "cpu").module
    [[batch]] = islice(steps(tokenizer, 1, 0, 512, 1, LATE), 1)
    taught, before, n = teach(model, batch), Before(), 9
    embedded, joined = taught.embedded[0, :n], head.join(taught.tapped[0, :n])
    states, known = shifted(head.join(taught.tapped), 1), shifted(joined[None], 1)[0]
    for _ in range(3):
        own = network.read(taught.embedded, states, before)
        said = head(embedded, known.clone(), torch.arange(n), WholeAttention())
        torch.testing.assert_close(own[0, n - 1], said[-1], rtol=1e-3, atol=1e-3)
        # The next token is read with the state that this pass has left.
        states, n = shifted(own, 1), n + 1
        embedded, known = taught.embedded[0, :n], torch.cat([known, said[-1:]])
