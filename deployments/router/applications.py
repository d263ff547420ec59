"""Models as Serve applications: what runs, deploying one, deleting those of earlier settings.

All of it blocks on Serve's controller: never to be called on an event loop.
"""

import logging
import re
from collections.abc import Iterable

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus

from deployments.model.deployment import model_application
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings, is_model_application

log = logging.getLogger("ray.serve")

EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception): ")
UP = {ApplicationStatus.RUNNING, ApplicationStatus.UNHEALTHY}  # Serve mends the latter


class LoadError(Exception):
    """The model can't be loaded, and trying again would not help."""


def model_handle(settings: ModelSettings) -> DeploymentHandle:
    """Raises RayServeException when the model is not deployed."""
    try:
        return serve.get_deployment_handle(MODEL_DEPLOYMENT, settings.application)
    except KeyError as error:
        raise RayServeException(f"{settings.application} is not deployed") from error


def is_up(settings: ModelSettings) -> bool:
    """Whether an application of this name was deployed; perhaps with other settings."""
    application = serve.status().applications.get(settings.application)
    return application is not None and application.status in UP


def deploy(settings: ModelSettings) -> None:
    """Returns when the model answers. Raises LoadError with the constructor's own words."""
    application = settings.application
    try:
        serve.run(model_application(settings), name=application, route_prefix=None)
    except RuntimeError as error:
        message = progress(settings) or str(error)
        _delete(application)
        raise LoadError(reason(message)) from error


def progress(settings: ModelSettings) -> str:
    """What Serve says of the model's deployment while it starts."""
    application = serve.status().applications.get(settings.application)
    deployment = application and application.deployments.get(MODEL_DEPLOYMENT)
    return deployment.message if deployment else ""


def unload_others(wanted: Iterable[str]) -> None:
    """Deletes all models' applications but these: applying a configuration leaves them running."""
    keep = set(wanted)
    for name, application in serve.status().applications.items():
        ours = is_model_application(name) and MODEL_DEPLOYMENT in application.deployments
        if ours and name not in keep:
            _delete(name)


def reason(message: str) -> str:
    """What the last exception of a traceback says."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    raised = [at for at, line in enumerate(lines) if EXCEPTION.match(line)]
    if not raised:
        return lines[-1] if lines else "the model did not start"
    return EXCEPTION.sub("", " ".join(lines[raised[-1] :]))


def _delete(application: str) -> None:
    try:
        serve.delete(application)
    except (RayError, RayServeException, TimeoutError) as error:
        log.warning("%s could not be deleted: %r", application, error)
