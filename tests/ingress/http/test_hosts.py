"""A server without keys answers to its own names alone, so that no page elsewhere reads it."""

import pytest

from deployments.ingress.host_names import HostNames
from deployments.ingress.settings import IngressSettings
from tests.ingress.edge import ask, served
from tests.openai.serving import CHAT, HELLO

OWN = ["localhost", "localhost:8000", "chat.localhost", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3"]


def status(host: str, settings: IngressSettings) -> int:
    answer = ask(served(settings=settings), "POST", CHAT, json=HELLO, headers={"host": host})
    if answer.status_code == 421:
        assert host in answer.json()["error"]["message"]
    return answer.status_code


def listening(at: str, *names: str, keys: tuple[str, ...] = ()) -> IngressSettings:
    return IngressSettings(host_names=HostNames(names, lambda: at), api_keys=keys)


@pytest.mark.parametrize("host", [*OWN, "gpu-box", "Manta.Example:443"])
def test_its_own_names_are_answered(host: str) -> None:
    assert status(host, listening("GPU-Box", "manta.example")) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", ""]
)
def test_another_name_is_refused(host: str) -> None:
    assert status(host, listening("127.0.0.1", "manta.example")) == 421


def test_a_server_that_listens_everywhere_or_has_keys_answers_to_any_name() -> None:
    assert status("any.example", listening("0.0.0.0")) == 200
    assert status("any.example", listening("127.0.0.1", keys=("key",))) == 401
