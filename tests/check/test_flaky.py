"""The check forgives a failure that does not come again, says so, and forgives nothing else."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.__main__ import Results, run_failed_again, run_tests

ONCE = """
def test_once():
    from pathlib import Path
    mark = Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran, "the first time"
"""
ALWAYS = "def test_always(): assert False, 'each time'"
CRASHES = "def test_crash(): import os; os._exit(3)"


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take most of the time


def results_of(source: str, folder: Path, options: Sequence[str] = ()) -> Results:
    (folder / "pytest.ini").write_text("[pytest]")
    (folder / "test_it.py").write_text(source)
    arguments = ("-c", str(folder / "pytest.ini"), "--rootdir", str(folder), str(folder))
    results = Results()
    run_tests(("pytest", *options, *arguments), results, folder / "cache")
    if results.may_be_flaky():
        run_failed_again(arguments, results, folder / "cache")
    return results


def test_a_failure_that_does_not_come_again_is_flaky(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = results_of(ONCE, tmp_path)
    results.print()
    assert not any(results.codes)
    assert (results.tests["passed"], results.tests["failed"]) == (1, 0)
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("== FLAKY") and "test_once" in line for line in said)
    assert any("the first time" in line for line in said)
    assert said[-1] == "1 passed, 0 failed, 0 skipped"


def test_a_failure_that_comes_again_is_one(tmp_path: Path) -> None:
    results = results_of(ONCE + ALWAYS, tmp_path)
    assert results.codes == [1]
    assert results.tests["failed"] == 2


def test_a_crash_is_not_forgiven(tmp_path: Path) -> None:
    results = results_of(CRASHES, tmp_path, ("-p", "xdist", "-n1", "--max-worker-restart=0"))
    assert results.tests["failed"]
    assert not results.may_be_flaky()
