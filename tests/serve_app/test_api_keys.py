"""Keys come from one place or none, and a place without a key never opens the door."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from serve_app.api_keys import VARIABLE
from serve_app.encryption_key import VARIABLE as ENCRYPTION_VARIABLE
from serve_app.ingress_arguments import IngressArguments


def keys(**arguments: object) -> tuple[str, ...]:
    return IngressArguments.model_validate(arguments).ingress_settings().api_keys


@pytest.fixture(autouse=True)
def _no_keys_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv(ENCRYPTION_VARIABLE, "k" * 32)


def test_by_default_there_are_none() -> None:
    assert keys() == ()


def test_arguments_and_a_file_add_up(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\n\n  b2 \nc#3\n")
    assert keys(api_keys=["a1"], api_key_file=str(file)) == ("a1", "b2", "c#3")


def test_the_environment_counts_where_nothing_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a1, b2,")
    assert keys() == ("a1", "b2")
    assert keys(api_keys=["c3"]) == ("c3",)


@pytest.mark.parametrize("text", ["", "# a1\n", "\n\n"])
def test_a_file_without_a_key_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ValueError, match="no API key"):
        keys(api_key_file=str(file))


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"\xff", "can't decode byte")]
)
def test_a_file_that_can_not_be_read_is_an_error_of_its_setting(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=f"^api_key_file: {file} can't be read: .*{reason}"):
        keys(api_key_file=str(file))


def test_a_variable_without_a_key_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, " , ")
    with pytest.raises(ValueError, match="no API key"):
        keys()


@pytest.mark.parametrize("key", ["", "two words", "schl\u00fcssel", "line\nend"])
def test_a_key_that_no_header_carries_is_an_error(key: str) -> None:
    with pytest.raises(ValueError, match="an API key of api_keys") as failure:
        keys(api_keys=["a1", key])
    assert not key or key not in str(failure.value)


def test_no_key_is_shown() -> None:
    arguments = IngressArguments.model_validate({"api_keys": ["secret-key"]})
    assert "secret" not in repr(arguments) + repr(arguments.ingress_settings())
    with pytest.raises(ValidationError) as wrong:
        IngressArguments.model_validate({"api_keys": "secret-key"})
    assert "secret" not in str(wrong.value)


def test_a_key_of_a_file_may_have_the_name_of_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("anna a1\nb2\n  anna\tc#3\n# eve e5\n")
    settings = IngressArguments(api_key_file=str(file)).ingress_settings()
    assert settings.api_keys == ("a1", "b2", "c#3")
    assert settings.key_owners == {"a1": "anna", "c#3": "anna"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("anna a1 a2", "NAME KEY"),
        ("anna/x a1", "name of a key"),
        ("anna a1\nbert a1", "twice"),
    ],
)
def test_a_line_that_is_no_key_with_a_name_is_an_error_that_shows_no_key(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ValueError, match=reason) as failure:
        keys(api_key_file=str(file))
    assert "a1" not in str(failure.value)
