"""A folder with a model that sees is loaded with all that its files have."""

import json
from pathlib import Path

import pytest
import torch

from deployments.contract.media_rules import MediaKind
from deployments.contract.model_card import media_kinds
from deployments.engine.core import EngineCore
from deployments.engine.loading.fingerprint import fingerprint
from deployments.engine.loading.loader import load_model, load_tokenizer
from deployments.engine.model_card import default_sampling, generation_config, make_card
from tests.engine.drive import engine, roomy
from tests.engine.media.seeing import picture, seeing


@pytest.fixture
def folder(tmp_path: Path) -> str:
    seeing().whole.save_pretrained(tmp_path)
    seeing().processor.save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("qwen2_5_vl", {}),
        ("mistral3", {"processor_class": "PixtralProcessor", "spatial_merge_size": 2}),
        ("smolvlm", {"processor_class": "SmolVLMProcessor", "image_seq_len": 4}),
    ],
)
def test_images_need_no_package_that_videos_do(
    name: str, fields: dict[str, object], tmp_path: Path
) -> None:
    one, prompt = seeing(name), ("What is this? <image>.", (picture(1),))
    for part in (one.whole, one.processor.image_processor, one.processor.tokenizer):
        part.save_pretrained(tmp_path)
    if fields:
        (tmp_path / "processor_config.json").write_text(json.dumps(fields))
    with engine(model=load_model(str(tmp_path), dtype=torch.float32)) as running:
        outcome = running.run(one.request("one", *prompt))[0]
    assert outcome.token_ids == one.expected(*prompt)


def test_what_was_loaded_says_what_transformers_says(folder: str) -> None:
    prompt = "What is this? <image>.", (picture(1),)
    with engine(model=load_model(folder, dtype=torch.float32)) as running:
        outcome = running.run(seeing().request("one", *prompt))[0]
    assert outcome.token_ids == seeing().expected(*prompt)


def test_its_card_has_the_rules_of_its_processor(folder: str) -> None:
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    core = EngineCore(model, frozenset(), roomy())
    try:
        sampling = default_sampling(generation_config(model.model))
        card = make_card("seeing", core, tokenizer, "", sampling, fingerprint(model.model))
    finally:
        core.shutdown()
    assert media_kinds(card) == (MediaKind.IMAGE,)
    assert card.media == seeing().rules


def test_without_its_processor_it_reads_text_only(folder: str) -> None:
    (Path(folder) / "processor_config.json").unlink()
    core = EngineCore(load_model(folder), frozenset(), roomy())
    core.shutdown()
    assert core.media is None
