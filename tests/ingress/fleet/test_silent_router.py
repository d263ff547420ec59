"""Requests go on while the router does not answer."""

import pytest
from ray.exceptions import RayError

from deployments.ingress.fleet import router_client
from tests.ingress.fleet.actors import MODEL, Actors
from tests.ingress.fleet.test_fleet import ASKED, LENGTH, ids


async def test_requests_flow_while_the_router_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = Actors()
    monkeypatch.setattr(router_client, "ROUTER_RETRY_S", 600.0)
    fleet = actors.fleet()
    known = await fleet.card(None)
    actors.router.choices = [RayError("dead")]
    actors.router.wants = [RayError("dead")]
    assert await fleet.card(None) == await fleet.card(MODEL) == known
    answers = [[event async for event in fleet.generate(known, ASKED)] for _ in range(3)]
    assert [len(ids(events)) for events in answers] == [LENGTH] * 3
    assert len(actors.router.asked) == 1
