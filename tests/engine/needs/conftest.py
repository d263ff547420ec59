"""Has no mask be late on a busy machine: a row that waits needs no pages that others lack."""

import pytest

from deployments.engine.needs.grammar import grammar_need
from tests.engine.drive import PATIENCE_S


@pytest.fixture(autouse=True)
def _no_mask_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_need, "MASK_GRACE_S", PATIENCE_S)
