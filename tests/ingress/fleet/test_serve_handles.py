"""Messages about deployments that give no answer."""

import asyncio
import logging
from typing import Any

import pytest
from ray.exceptions import RayError
from ray.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    ServeStatus,
)

from deployments.contract.errors import Refused
from deployments.ingress.fleet.model_waits import ModelWaits
from deployments.ingress.fleet.router_client import RouterClient
from deployments.ingress.fleet.serve_handles import ServeHandles
from tests.ingress.fleet.actors import Actors


def of_router(status: str, message: str, of_deployment: str = "") -> ServeStatus:
    deployment = DeploymentStatusOverview(
        DeploymentStatus.UNHEALTHY,
        DeploymentStatusTrigger.REPLICA_STARTUP_FAILED,
        {},
        of_deployment,
    )
    application = ApplicationStatusOverview(
        ApplicationStatus(status), message, 0.0, {"Router": deployment}
    )
    return ServeStatus(applications={"router": application})


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        (ServeStatus(), "does not answer; try again soon"),
        (of_router("DEPLOYING", "ValueError: odd"), "does not answer; try again soon"),
        (of_router("DEPLOY_FAILED", "Traceback:\nValueError: odd"), "could not be started: odd"),
        (of_router("DEPLOY_FAILED", "unhealthy", "OSError: gone"), "could not be started: gone"),
    ],
)
def test_without_a_router_an_unknown_model_is_not_waited_for_forever(
    serve: ServeStatus, said: str
) -> None:
    actors = Actors()
    actors.serve = serve
    actors.router.wants = [RayError("dead")]

    async def ask() -> None:
        router = RouterClient(actors.handles())
        patience_s = 60.0 if "could not be started" in said else 0.0
        waiting = ModelWaits(router, actors.metrics, pause_s=0.0, patience_s=patience_s)
        await waiting.wait_until_up("m", timeout_s=60.0)

    with pytest.raises(Refused, match=f"^The router {said}"):
        asyncio.run(ask())


def test_an_application_that_is_not_there_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    actors, found = Actors(), iter([KeyError(), KeyError(), None])

    def find(deployment: str, application: str) -> Any:
        if error := next(found):
            raise error
        return actors.find(deployment, application)

    async def ask() -> list[list[object]]:
        handles = ServeHandles(find)
        return [await handles.broadcast("anthropic", "anthropic", "samples") for _ in range(4)]

    with caplog.at_level(logging.WARNING, logger="ray.serve"):
        assert asyncio.run(ask()) == [[], [], [0], [0]]
    assert len([message for message in caplog.messages if "from anthropic" in message]) == 1
