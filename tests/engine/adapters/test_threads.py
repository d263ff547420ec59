"""Whoever makes an engine leaves all cores to the thread that runs the model."""

import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

from deployments.engine import build
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.limits import ON_CPU
from tests.engine.drive import engine
from tests.models import tiny_model


def test_the_slots_of_adapters_are_made_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """More would stay as long as the maker's thread does, and slow each step down."""
    seen: list[int] = []

    class Watched(AdapterSlots):
        def __init__(self, *args: Any) -> None:
            seen.append(torch.get_num_threads())
            super().__init__(*args)

    def make() -> None:
        torch.set_num_threads(2)
        with engine(model=model, limits=replace(ON_CPU, max_loras=2, n_pages=64)):
            seen.append(torch.get_num_threads())

    monkeypatch.setattr(build, "AdapterSlots", Watched)
    model = tiny_model("llama")
    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
    assert seen == [1, 2]
