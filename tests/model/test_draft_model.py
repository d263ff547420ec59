"""A model is served with a draft model or a draft head, which sleeps and wakes with it; a model of
another tokenizer is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.engine import InferenceEngine
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.limits import EngineLimits
from deployments.model.model_source import ModelSource
from deployments.model.settings import ModelSettings
from serve_app.demo.model_files import MODEL
from tests.checkpoints import byte_tokenizer, save_checkpoint
from tests.heads import as_llama, head_tensors, save_head
from tests.mtp_heads import save_mimo

REQUEST = GenerationRequest(
    request_id="a",
    prompt_ids=tuple(range(40, 60)),
    sampling=SamplingParams(temperature=0.5, seed=1),
    max_tokens=40,
    ignore_eos=True,
)
LIMITS = EngineLimits(n_pages=64, max_running=2, draft_tokens=4, draft_min=1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("model"), context=128)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head of another size than the model's, with embeddings of its own."""
    config = as_llama(
        vocab_size=len(byte_tokenizer()),
        target_hidden_size=64,
        eagle_aux_hidden_state_layer_ids=[0, 1],
    )
    tensors = head_tensors(config, "embed_tokens")
    return Path(save_head(tmp_path_factory.mktemp("head"), config, tensors))


def settings(path: Path, draft: Path) -> ModelSettings:
    return ModelSettings(
        name="m", path=str(path), draft_model=str(draft), dtype="float32", limits=LIMITS
    )


@pytest.mark.parametrize("kind", ["model", "head", "mtp"])
def test_it_drafts_before_and_after_a_sleep(
    path: Path, head: Path, kind: str, tmp_path: Path
) -> None:
    drafting = settings(path, path if kind == "model" else head)
    if kind == "mtp":
        drafting = replace(drafting, path=save_mimo(tmp_path), draft_model=None, spec_type="mtp")
    alone = replace(drafting, draft_model=None, spec_type=None, limits=EngineLimits())
    core = ModelSource(alone, _hear).start()
    expected = [event.token_ids for _, event in core.run([REQUEST])]
    core.shutdown()
    source = ModelSource(drafting, _hear)
    for _ in range(2):
        core = source.start()
        told = [event.token_ids for _, event in core.run([REQUEST])]
        stats = core.stats()
        core.shutdown()
        del core
        source.release()
        assert told == expected
        assert stats.drafted_tokens > 0
        assert stats.accepted_tokens == stats.drafted_tokens or kind != "model"


def test_one_of_another_tokenizer_is_refused_by_a_token(path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="another tokenizer: token 0 is"):
        ModelSource(settings(path, MODEL), _hear).start()


def test_a_head_that_nobody_asked_for_is_told_of(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "ray.serve"):
        for folder in (str(path), save_mimo(tmp_path)):
            alone = replace(settings(path, path), path=folder, draft_model=None)
            ModelSource(replace(alone, limits=EngineLimits(n_pages=64)), _hear).start().shutdown()
    found = [line for line in caplog.messages if "spec-type" in line]
    assert found == ["m: its files have an MTP head, which drafts with spec-type = mtp"]


def test_the_library_takes_a_models_own_head(path: Path, tmp_path: Path) -> None:
    with InferenceEngine(save_mimo(tmp_path), limits=LIMITS, spec_type="mtp") as engine:
        engine.generate("abc", max_tokens=20, temperature=2, ignore_eos=True)
        assert engine.core.stats().drafted_tokens > 0
    with pytest.raises(UnsupportedModelError, match="no MTP heads of llama"):
        InferenceEngine(str(path), spec_type="mtp")


def test_the_library_takes_a_draft_model(path: Path) -> None:
    with InferenceEngine(str(path), limits=LIMITS, draft=str(path)) as engine:
        engine.generate("abc", max_tokens=20, temperature=0, ignore_eos=True)
        assert engine.core.stats().accepted_tokens > 0


def _hear(phase: str, share: float) -> None:
    pass
