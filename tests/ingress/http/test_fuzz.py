"""Requests drawn from each application's own document: no failure, nothing that it does not say."""

from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.effort import tries
from tests.ingress.edge import every

Case = schemathesis.Case[Any]
Operation = schemathesis.APIOperation[Any, Any, Any, Any]

EXAMPLES = tries(10, 50)
POSITIVE = schemathesis.GenerationMode.POSITIVE


def does_not_fail(
    context: schemathesis.CheckContext, response: schemathesis.Response, case: Case
) -> None:
    """501 is a refusal: of what the server, or this model, can't do."""
    assert response.status_code < 500 or response.status_code == 501, response.text


CHECKS = [
    does_not_fail,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENTS = {
    "openai": "/v1/openapi.json",
    "anthropic": "/v1/messages/openapi.json",
    "llama": "/openapi.json",
}


ENDLESS = {"/models/sse", "/v1/models/sse"}  # they answer for as long as somebody listens


@dataclass(frozen=True)
class Drawn:
    """One operation of an application, and the kind of requests to draw."""

    operation: Operation
    mode: schemathesis.GenerationMode

    def __str__(self) -> str:
        return f"{self.operation.label} {self.mode.value}"


def drawn() -> list[Drawn]:
    found = []
    for protocol, app in every().items():
        document = schemathesis.openapi.from_asgi(DOCUMENTS[protocol], app)
        for result in document.get_all_operations():
            assert isinstance(result, Ok), result
            operation = result.ok()
            if operation.path in ENDLESS:
                continue
            # Without a body there is nothing to get wrong that is not another path.
            modes = list(schemathesis.GenerationMode) if operation.body else [POSITIVE]
            found += [Drawn(operation, mode) for mode in modes]
    return found


@pytest.mark.parametrize("one", drawn(), ids=str)
def test_nothing_fails_and_all_is_documented(one: Drawn) -> None:
    requests = one.operation.as_strategy(generation_mode=one.mode)

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        try:
            case = data.draw(requests)
        except InvalidSchema:  # schemathesis can't make every wrong value that it thinks of
            reject()
        case.call_and_validate(checks=CHECKS)

    ask()
