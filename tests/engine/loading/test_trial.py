"""A model is served if the engine computes in parts what transformers computes at once."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, RobertaConfig

from deployments.engine.cache_sizing import cache_shape
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.recurrent import can_keep_states
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.loaded_model import LoadedModel
from tests.engine.drive import roomy
from tests.families import tiny as families
from tests.models import SIZES, tiny_model


def add_token_before(_: nn.Module, __: object, hidden: Tensor) -> Tensor:
    return hidden + F.pad(hidden, (0, 0, 1, 0))[:, :-1]


def test_a_model_that_mixes_tokens_beside_its_attention_is_refused() -> None:
    model = tiny_model("gemma4")
    find_decoding(model)
    model.model.layers[1].mlp.register_forward_hook(add_token_before)
    reason = "gemma4_text computes other logits in parts than at once"
    with pytest.raises(UnsupportedModelError, match=f"^{reason}; row by row: {reason}$"):
        find_decoding(model)


def test_a_model_that_transformers_itself_can_not_run_is_refused() -> None:
    model = tiny_model("gemma4")
    model.model.layers[1].mlp.down_proj = nn.Linear(7, 32)
    with pytest.raises(UnsupportedModelError, match="transformers can't run gemma4_text"):
        find_decoding(model)


def test_want_of_memory_is_no_reason_to_run_row_by_row() -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory is left")

    model = tiny_model("gemma4")
    model.model.layers[1].mlp.register_forward_hook(fail)
    with pytest.raises(UnsupportedModelError, match=r"^[^;]*no memory is left$"):
        find_decoding(model)


@pytest.mark.skipif(not can_keep_states(), reason="needs a newer transformers")
@pytest.mark.parametrize("architecture", ["qwen3_next", "mamba2"])
def test_with_an_older_transformers_states_go_row_by_row_and_the_log_names_the_one_needed(
    architecture: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model(architecture)
    monkeypatch.setattr(f"{can_keep_states.__module__}.transformers.__version__", "5.22.4")
    assert find_decoding(model).by_rows is not None
    (said,) = (record.message for record in caplog.records if "row by row" in record.message)
    assert said.endswith("those that keep a state need transformers 5.23 or newer")
    monkeypatch.undo()
    assert find_decoding(model).by_rows is None


def roberta(padding: int, n_positions: int) -> PreTrainedModel:
    sizes = {**SIZES, "pad_token_id": padding, "max_position_embeddings": n_positions}
    return AutoModelForCausalLM.from_config(RobertaConfig(**sizes, is_decoder=True)).eval()


def test_positions_may_begin_behind_that_of_padding_and_leave_a_shorter_context() -> None:
    model = roberta(padding=1, n_positions=64)
    execution = find_decoding(model)
    assert cache_shape(LoadedModel(model), execution, roomy()).max_tokens == 62
    assert execution.first_position == 2
    assert execution.by_rows is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ["gpt_oss", "deepseek_v3", "diffllama"])
def test_rounding_is_no_reason_to_refuse(architecture: str, dtype: torch.dtype) -> None:
    find_decoding(tiny_model(architecture).to(dtype))


def test_rounding_hides_no_state_that_is_left_out() -> None:
    """Its mixers begin anew with each chunk, which changes little in bfloat16."""
    model = families.tiny_model("falcon_mamba").to(torch.bfloat16)
    assert find_decoding(model).by_rows is None


def test_states_that_modules_hold_themselves_are_those_of_each_row() -> None:
    model = tiny_model("recurrent_gemma")
    execution = find_decoding(model)
    assert cache_shape(LoadedModel(model), execution, roomy(context_length=64)).has_states
    how = execution.by_rows
    assert how is not None
    assert [attribute for _, attribute in how.module_states] == [
        "conv1d_state",
        "recurrent_states",
    ] * 2
