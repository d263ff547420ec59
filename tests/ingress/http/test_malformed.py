"""Whatever is wrong with a request is said in its protocol's form, and the next one is answered."""

import pytest

from tests.ingress.edge import every
from tests.malformed.cases import Malformed, cases, message_of
from tests.malformed.endpoints import ENDPOINTS
from tests.openai.serving import http

APPS = every()
CASES = list(cases())
RIGHT = {endpoint.path: endpoint.right for endpoint in ENDPOINTS}


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
    if case.param and case.protocol != "anthropic":
        assert refused.json()["error"]["param"] == case.param
    assert answered.status_code == 200, answered.text
