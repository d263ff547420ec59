"""Whoever makes an engine leaves all cores to the thread that runs the model."""

import os
import threading
from dataclasses import replace

import torch

from deployments.engine.limits import ON_CPU
from tests.engine.drive import engine
from tests.models import tiny_model

N_THREADS = 2
RANK = 1024  # whose slots are so large that they are filled in parallel


def n_workers() -> int:
    """Threads that Python knows nothing of."""
    return len(os.listdir("/proc/self/task")) - len(threading.enumerate())


def test_making_an_engine_with_adapters_starts_no_workers_in_its_makers_thread() -> None:
    """They would stay as long as that thread does, and slow each step down."""
    left: list[int] = []

    def make() -> None:
        torch.set_num_threads(N_THREADS)
        before = n_workers()
        limits = replace(ON_CPU, max_loras=8, max_lora_rank=RANK, n_pages=64)
        with engine(model=model, limits=limits):
            pass
        left.append(n_workers() - before)

    model = tiny_model("llama")
    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
    assert left == [0]
