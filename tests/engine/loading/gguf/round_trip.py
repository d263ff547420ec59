"""Writes a model to a GGUF file and reads it back."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.loading.gguf.model_plan import GGUFPlan, read_plan
from deployments.engine.loading.gguf.reader import read_gguf
from tests.engine.loading.gguf.converted import AddKeys, Modify, vary, write
from tests.models import SIZES, VOCAB, from_config

# What no file says, and no answer depends on.
UNSAID = {
    *("architectures", "attention_dropout", "dtype", "initializer_range", "transformers_version"),
    *("_sliding_window_pattern", "use_cache"),
}
N_TOKENS = 200  # more than each original context and window here
# Halves of a head's rows can't be exchanged, nor can the rows of Q and K.
WIDE = {**SIZES, "head_dim": 16, "bos_token_id": 1, "eos_token_id": 2}
NARROW = {name: value for name, value in WIDE.items() if name != "head_dim"}


@dataclass(frozen=True)
class Case:
    """A model and how it is converted.

    tolerance: how far logits may be from those of the original, relative to the largest of them.
    unsaid: further fields in which the configs may differ.
    make: makes the model of its config.
    """

    architecture: str
    config: Callable[[], PretrainedConfig]
    modify: Modify
    add_keys: AddKeys
    tolerance: float = 0.0
    unsaid: frozenset[str] = frozenset()
    make: Callable[[PretrainedConfig], PreTrainedModel] = from_config


def original(case: Case) -> PreTrainedModel:
    torch.manual_seed(0)
    return vary(case.make(case.config()).float().eval())


def plan_of(case: Case, model: PreTrainedModel, path: Path) -> GGUFPlan:
    file = path / "model.gguf"
    write(model, file, case.architecture, add_keys=case.add_keys, modify=case.modify)
    return read_plan(read_gguf(file))


def said(config: PretrainedConfig, case: Case) -> dict[str, Any]:
    fields = config.to_dict()
    return {name: fields[name] for name in fields.keys() - UNSAID - case.unsaid}


def loaded(plan: GGUFPlan, case: Case) -> PreTrainedModel:
    model = case.make(plan.config).float().eval()
    weights = {name: torch.from_numpy(source.float32()) for name, source in plan.sources.items()}
    found = model.load_state_dict(weights, strict=False)
    assert not found.unexpected_keys
    assert found.missing_keys == ["lm_head.weight"] * (
        plan.config.tie_word_embeddings and model.get_output_embeddings() is not None
    )
    return model


@torch.no_grad()
def answers(model: PreTrainedModel) -> torch.Tensor:
    """The logits, or hidden states of a model without a vocabulary's head."""
    torch.manual_seed(2)
    found: torch.Tensor = model(torch.randint(VOCAB, (1, N_TOKENS)))[0]
    return found


def check_round_trip(case: Case, path: Path) -> GGUFPlan:
    """Each weight is as it was, and so is what the model computes by the config."""
    model = original(case)
    plan = plan_of(case, model, path)
    weights = model.state_dict()
    for name, source in plan.sources.items():
        found = torch.from_numpy(source.float32())
        if name.endswith("A_log"):
            torch.testing.assert_close(found, weights[name])
        else:
            assert torch.equal(found, weights[name]), name
    assert said(plan.config, case) == said(model.config, case)
    read = loaded(plan, case)
    assert plan.config.architectures == [type(read).__name__]
    expected, answer = answers(model), answers(read)
    assert (answer - expected).abs().max() <= case.tolerance * expected.abs().max()
    return plan
