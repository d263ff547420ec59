"""Requests drawn from each application's own document: no failure, nothing that it does not say."""

import pytest

from tests.ingress.edge import every
from tests.ingress.http.fuzzing import Drawn, drawn_of

DOCUMENTS = {
    "openai": "/v1/openapi.json",
    "anthropic": "/v1/messages/openapi.json",
    "llama": "/openapi.json",
}


ENDLESS = {
    "/models/sse",
    "/v1/models/sse",
    "/fleet/sse",
}  # they answer for as long as somebody listens


def drawn() -> list[Drawn]:
    return [
        operation
        for name, app in every().items()
        for operation in drawn_of(app, DOCUMENTS[name], ENDLESS)
    ]


@pytest.mark.parametrize("one", drawn(), ids=str)
def test_nothing_fails_and_all_is_documented(one: Drawn) -> None:
    one.check()
