"""Requests drawn from an application's own document, and what every answer has to be."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

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
from starlette.types import ASGIApp

from tests.effort import tries

Case = schemathesis.Case[Any]
Operation = schemathesis.APIOperation[Any, Any, Any, Any]

EXAMPLES = tries(10, 50)
TIMEOUT_S = 120  # of an answer, however busy the machine is
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


@dataclass(frozen=True)
class Drawn:
    """One operation of an application, and the kind of requests to draw."""

    operation: Operation
    mode: schemathesis.GenerationMode

    def __str__(self) -> str:
        return f"{self.operation.label} {self.mode.value}"

    def check(self, prepare: Callable[[Case], None] = lambda case: None) -> None:
        """`prepare` may change each request before it is sent."""
        requests = self.operation.as_strategy(generation_mode=self.mode)

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
            prepare(case)
            case.call_and_validate(checks=CHECKS, timeout=TIMEOUT_S)

        ask()


def drawn_of(app: ASGIApp, document: str, without: Collection[str] = ()) -> list[Drawn]:
    """Returns all operations but the paths `without`; `document` is the document's path."""
    found = []
    schema = schemathesis.openapi.from_asgi(document, app, timeout=TIMEOUT_S)
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if operation.path in without:
            continue
        # Without a body there is nothing to get wrong that is not another path.
        modes = list(schemathesis.GenerationMode) if operation.body else [POSITIVE]
        found += [Drawn(operation, mode) for mode in modes]
    return found
