"""Requests drawn from the document about what is stored: no failure, and all is documented."""

import tempfile

import pytest
from starlette.types import Receive, Scope, Send

from deployments.openai.responses.database_store import DatabaseStore
from deployments.store.items import StoredItem
from tests.ingress.engines import ScriptedEngine, says
from tests.ingress.http.fuzzing import Case, Drawn, drawn_of
from tests.openai.responses.responding import ROOMY
from tests.openai.serving import served

DOCUMENT = "/v1/openapi.json"
STORED = ("/v1/conversations", "/v1/responses/{id}")
ITEM = StoredItem("msg_known", b'{"id":"msg_known","type":"message","role":"user","content":[]}')
KNOWN = {"id": "conv_known", "item_id": ITEM.id}


class AppOfAnyLoop:
    """A store belongs to one event loop, and each request here has a loop of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="manta-test-")
        self._url = f"sqlite:///{self._folder.name}/store.db"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        store = DatabaseStore(self._url)
        try:
            await self._know(store)
            await served(ScriptedEngine(says("x"), ROOMY), store=store)(scope, receive, send)
        finally:
            await store.close()

    async def _know(self, store: DatabaseStore) -> None:
        """The conversation is there, even if it was deleted before."""
        name = KNOWN["id"]
        if await store.read("", lambda kept: kept.conversations.find("", name)) is None:
            await store.write("", lambda kept: kept.conversations.create("", name, "{}", 1, [ITEM]))


def of_known_things(case: Case) -> None:
    """Texts that were drawn are hardly ever ids."""
    case.path_parameters.update({n: KNOWN[n] for n in case.path_parameters if n in KNOWN})


def drawn() -> list[Drawn]:
    found = drawn_of(AppOfAnyLoop(), DOCUMENT)
    return [draw for draw in found if draw.operation.path.startswith(STORED)]


@pytest.mark.parametrize("one", drawn(), ids=str)
def test_nothing_fails_and_all_is_documented(one: Drawn) -> None:
    one.check(of_known_things)
