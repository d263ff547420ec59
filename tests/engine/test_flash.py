"""FlashAttention is asked for by what is there, and only for what it can do."""

import numpy as np
import pytest
import torch

from deployments.engine.flash import FlashStep, flash_version
from deployments.engine.paged import plan_paged
from kv.storage import Storage


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_there_is_none_without_a_gpu() -> None:
    assert flash_version() is None


def test_decodes_have_no_keys_for_it() -> None:
    table, total, new = np.arange(12).reshape(3, 4), np.array([9, 5, 16]), np.array([1, 5, 3])
    step = FlashStep.of(plan_paged(Storage(1, 12, 4, 1, 8), table, total, new))
    assert step._seen().tolist() == [0, 5, 16]
    assert step.longest_decode == 9
