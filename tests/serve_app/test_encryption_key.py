"""The deployment's key comes from one place, and outlives the process that made it."""

import stat
from pathlib import Path

import pytest

from serve_app.encryption_key import KEY_FILE, VARIABLE, encryption_key
from serve_app.ingress_arguments import IngressArguments

KEY, OTHER = "k" * 32, "o" * 40


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def test_what_is_made_is_found_again(home: Path) -> None:
    made = IngressArguments().ingress_settings().encryption_key
    assert len(made) >= 32
    assert encryption_key(None) == made
    file = Path(KEY_FILE).expanduser()
    assert file.is_relative_to(home)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_file_counts_before_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, OTHER)
    assert encryption_key(None) == OTHER.encode()
    file = home / "key"
    file.write_text(f"{KEY}\n")
    arguments = IngressArguments.model_validate({"encryption_key_file": str(file)})
    assert arguments.ingress_settings().encryption_key == KEY.encode()
    assert not Path(KEY_FILE).expanduser().exists()


def test_a_home_that_can_not_be_written_gives_a_key_all_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "file"
    file.touch()
    monkeypatch.setenv("HOME", str(file))
    assert len({encryption_key(None), encryption_key(None)}) == 2


@pytest.mark.parametrize("text", ["", "short", None])
def test_a_source_without_a_usable_key_is_an_error(home: Path, text: str | None) -> None:
    file = home / "key"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match="key"):
        encryption_key(str(file))


def test_a_short_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "secret")
    with pytest.raises(ValueError, match=VARIABLE) as wrong:
        encryption_key(None)
    assert "secret" not in str(wrong.value)
