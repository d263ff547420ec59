"""Everything that can be wrong with a request, through a real `serve run`: refused, and alive."""

import httpx
import pytest

from tests.e2e.server import Server
from tests.effort import tries
from tests.malformed.cases import cases, message_of
from tests.malformed.endpoints import ENDPOINTS

PROTOCOLS = sorted({endpoint.protocol for endpoint in ENDPOINTS})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_is_refused_in_form_and_the_server_lives(server: Server, protocol: str) -> None:
    asked = [case for case in cases() if case.protocol == protocol][:: tries(2, 1)]
    assert len(asked) >= 60  # tests/ingress/http/test_malformed.py has all of them
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for case in asked:
            answer = client.request(
                case.method, case.path, content=case.body, headers=dict(case.headers)
            )
            assert answer.status_code == case.status, f"{case}: {answer.text}"
            assert case.told in message_of(protocol, answer), str(case)
        for endpoint in (endpoint for endpoint in ENDPOINTS if endpoint.protocol == protocol):
            answer = client.post(endpoint.path, json=endpoint.right)
            # Infilling takes a model with marks for it.
            assert answer.status_code in (200, 501), f"{endpoint.path}: {answer.text}"
    server.eventually(server.is_ready)
