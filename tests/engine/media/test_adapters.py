"""Adapters name layers of a model that sees by their path in the whole, and fit all the same."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.lora import merge_adapters
from kv.content import Adapter
from tests.adapters import lora_tensors, make_adapter, save_adapter
from tests.engine.drive import engine, roomy
from tests.engine.media.seeing import language_model, picture, seeing

PROMPT = "What is this? <image>", (picture(1),)
# Those that its tower has not.
LAYERS = ("self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")


@pytest.fixture
def adapter(tmp_path: Path) -> Adapter:
    return make_adapter(tmp_path / "adapter", seeing().whole, targets=LAYERS, scale=2.0)


def expected(adapter: Adapter) -> tuple[int, ...]:
    """Returns the tokens of transformers' model, whose names are the adapter's."""
    whole = copy.deepcopy(seeing().whole)
    merge_adapters(LoadedModel(whole), [(adapter.path, adapter.scale)])
    return replace(seeing(), whole=whole).expected(*PROMPT)


def test_it_is_merged_as_the_model_is_loaded(adapter: Adapter) -> None:
    model = language_model()
    merge_adapters(model, [(adapter.path, adapter.scale)])
    with engine(model=model) as running:
        outcome = running.run(seeing().request("one", *PROMPT))[0]
    assert outcome.token_ids == expected(adapter)


def test_requests_choose_it_beside_those_without(adapter: Adapter) -> None:
    plain = seeing().request("plain", *PROMPT)
    adapted = replace(
        plain, request_id="adapted", content=replace(plain.content, adapters=(adapter,))
    )
    with engine(model=language_model(), limits=roomy(max_loras=1)) as running:
        outcomes = running.run_together(plain, adapted)
    assert [outcome.token_ids for outcome in outcomes] == [
        seeing().expected(*PROMPT),
        expected(adapter),
    ]
    assert outcomes[0].token_ids != outcomes[1].token_ids


def test_older_names_mean_the_same(adapter: Adapter, tmp_path: Path) -> None:
    """The names are those from before transformers moved the language model into the base."""
    tensors = {
        name.replace("model.language_model.", "language_model.model."): tensor
        for name, tensor in lora_tensors(seeing().whole, targets=LAYERS).items()
    }
    older = save_adapter(tmp_path / "older", tensors)
    models = [language_model() for _ in "ab"]
    for model, path in zip(models, (adapter.path, older), strict=True):
        merge_adapters(model, [(path, 1.0)])
    ours, theirs = (dict(loaded.model.named_parameters()) for loaded in models)
    assert all(ours[name].equal(theirs[name]) for name in ours)
