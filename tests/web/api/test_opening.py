"""A store that can't be opened leaves chats to browsers, until it can."""

import asyncio
import logging
from pathlib import Path

import pytest
from pydantic import ValidationError

from deployments.store.limits import StoreLimits
from deployments.web.api.opening import StoreOpener
from deployments.web.api.routes import api_routes
from serve_app.web_arguments import WebArguments
from tests.web.api.serving import OPEN, error_of, message_body, over, served


def test_a_store_that_can_not_be_opened_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "a").write_text("a file where a folder should be")

    async def run() -> None:
        opener = StoreOpener(f"sqlite:///{tmp_path}/a/store.db", StoreLimits(), retry_s=0.01)
        async with over(opener) as api:
            assert (await api.get("/me")).json()["store"] == "none"
            changes = await api.get("/changes")
            assert (changes.status_code, "log" in error_of(changes)["message"]) == (503, True)
            assert changes.headers["retry-after"]
            (tmp_path / "a").unlink()
            assert opener._retrying is not None
            await asyncio.wait_for(opener._retrying, 60)
            assert (await api.get("/me")).json()["store"] == "server"
            await api.add_chat()

    asyncio.run(run())
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1  # however often it was tried
    assert errors[0].startswith("Chats are kept in browsers only. store: ")
    told = [record.getMessage() for record in caplog.records if record.name.endswith("opening")]
    assert "must have one replica" in told[-1]


def test_a_database_that_goes_away_leaves_who_asks_known_and_comes_back(tmp_path: Path) -> None:
    there, away = tmp_path / "there", tmp_path / "away"

    async def run() -> None:
        async with served(f"sqlite:///{there}/store.db") as api:
            await api.add_chat()
            there.rename(away)
            await asyncio.wait_for(api.until_idle(), 60)  # what the first sweep uses is not closed
            await api.opener.store.database.close()  # its connections, which have the file open
            said = (await api.get("/me")).json()
            assert (said["owner"], said["store"], said["used_bytes"]) == ("", "server", None)
            for answer in (await api.get("/changes"), await api.add(message_body(1))):
                assert (answer.status_code, error_of(answer)["type"]) == (503, "unavailable_error")
            away.rename(there)
            assert (await api.add(message_body(1))).status_code == 200

    asyncio.run(run())


def test_nothing_of_chats_is_there_without_a_store() -> None:
    found = {route.path: route for route in api_routes(None, OPEN)}
    assert found.keys() == {"/ui/api/me"}


def test_every_setting_of_the_store_can_be_set() -> None:
    given = {
        "store": "postgresql://u:secret@db/manta",
        "max_chats": 1,
        "max_messages": 2,
        "max_message_bytes": 3,
        "max_file_bytes": 4,
        "max_owner_bytes": 5,
        "defaults": {"theme": "dark"},
    }
    settings = WebArguments.model_validate(given).web_settings()
    assert (settings.store, settings.defaults) == (given["store"], {"theme": "dark"})
    assert settings.limits == StoreLimits(
        max_chats=1, max_messages=2, max_message_bytes=3, max_file_bytes=4, max_owner_bytes=5
    )
    assert "secret" not in repr(settings)
    assert WebArguments().web_settings().store is None
    assert WebArguments(store="none").web_settings().store == "none"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"store": "mysql://u:secret@db/x"}, "store: must be `none`"),
        ({"store": "sqlite:///chats.db"}, "store: .* `sqlite:////PATH`"),
        ({"max_chats": 0}, "max_chats"),
        ({"max_body_bytes": 1000}, "max_message_bytes: must be at most max_body_bytes"),
        ({"max_file_bytes": 120 << 20}, "9/8 of max_file_bytes"),
        ({"defaults": []}, "defaults"),
    ],
)
def test_a_wrong_setting_is_named_and_no_password_shown(
    given: dict[str, object], names: str
) -> None:
    with pytest.raises(ValidationError, match=names) as wrong:
        WebArguments.model_validate(given)
    assert "secret" not in str(wrong.value)
