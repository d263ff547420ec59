"""The OpenAI application with a decoder that may be as slow as its machine."""

from dataclasses import replace

from starlette.types import ASGIApp

from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS
from deployments.media.settings import MediaSettings
from deployments.openai.routes import app
from tests.ingress.engines import ScriptedEngine

PATIENT = replace(DEFAULTS, media=MediaSettings(decode_timeout_s=240))


def served(engine: ScriptedEngine) -> ASGIApp:
    return app(engine, Metrics(), PATIENT)
