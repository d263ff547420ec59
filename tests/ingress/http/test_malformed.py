"""Whatever is wrong with a request is said in its protocol's form, and the next one is answered."""

import pytest

from tests.ingress.edge import every
from tests.malformed.cases import Malformed, cases, message_of
from tests.malformed.endpoints import ENDPOINTS
from tests.openai.serving import http

APPS = every()
CASES = list(cases())
RIGHT = {endpoint.path: endpoint.right for endpoint in ENDPOINTS}
TYPES = {
    ("anthropic", 404): "not_found_error",
    ("anthropic", 413): "request_too_large",
    ("llama", 404): "not_found_error",
}


def test_they_are_many() -> None:
    assert all(sum(case.protocol == name for case in CASES) >= 120 for name in APPS)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_it_is_refused_and_the_next_one_answered(case: Malformed) -> None:
    async with http(APPS[case.protocol]) as client:
        refused = await client.request(
            case.method, case.path, content=case.body, headers=dict(case.headers)
        )
        path = case.path.rstrip("/")
        answered = await client.post(path, json=RIGHT[path])
    assert refused.status_code == case.status, refused.text
    assert case.told in message_of(case.protocol, refused)
    error = refused.json()["error"]
    assert error["type"] == TYPES.get((case.protocol, case.status), "invalid_request_error")
    if case.param and case.protocol != "anthropic":
        assert error["param"] == case.param
    assert answered.status_code == 200, answered.text
