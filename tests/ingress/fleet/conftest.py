"""Patience for a router that a busy machine makes slow."""

import pytest

from deployments.ingress.fleet import router_client


@pytest.fixture(autouse=True)
def _router_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, where its first call takes a thread, any replica would do."""
    monkeypatch.setattr(router_client, "CHOICE_TIMEOUT_S", 60.0)
