"""Requests drawn from the document of `/ui/api`: no failure, nothing that it does not say."""

import tempfile

import pytest
from starlette.types import Receive, Scope, Send

from deployments.ingress.settings import IngressSettings
from deployments.store.limits import StoreLimits
from deployments.web.api.opening import StoreOpener
from deployments.web.api.routes import api_routes
from tests.ingress.http.fuzzing import Case, Drawn, drawn_of
from tests.store.talking import CHAT, identifier
from tests.web.api.serving import MANY, application

DOCUMENT = "/ui/api/openapi.json"
SETTINGS = IngressSettings(hosts=("testserver",))
KNOWN = {"id": CHAT, "message": identifier(1), "sha256": "0" * 64}


class ApiOfAnyLoop:
    """A store belongs to one event loop, and each request here has a loop of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="manta-test-")
        self._url = f"sqlite:///{self._folder.name}/store.db"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        opener = StoreOpener(self._url, StoreLimits())
        opener.begin()
        try:
            app = application(api_routes(opener, SETTINGS, limits=MANY), SETTINGS)
            await app(scope, receive, send)
        finally:
            await opener.close()


def of_known_things(case: Case) -> None:
    """Texts that were drawn are hardly ever ids. Changes are not waited for."""
    case.path_parameters.update({n: KNOWN[n] for n in case.path_parameters if n in KNOWN})
    case.query.pop("wait", None)


@pytest.mark.parametrize("one", drawn_of(ApiOfAnyLoop(), DOCUMENT), ids=str)
def test_nothing_fails_and_all_is_documented(one: Drawn) -> None:
    one.check(of_known_things)
