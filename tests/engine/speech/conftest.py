"""The engine on a tiny Whisper, which all tests of this folder share."""

from collections.abc import Iterator

import pytest

from deployments.engine.engine import InferenceEngine
from deployments.engine.limits import ON_CPU
from tests.engine.speech.tiny_whisper import started


@pytest.fixture(scope="package")
def engine() -> Iterator[InferenceEngine]:
    with started(ON_CPU) as running:
        yield running
