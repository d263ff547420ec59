"""The one check, for people and for CI: `python -m tests`.

Arguments go to pytest. Two processes share the tests, as tests/check/sharing.py says. Types are
checked beside, in the time that both leave. A test that fails is run once more at the end, alone on
the machine. Where it passes then, the check does too, and ends by saying that the test is flaky.
The exhaustive run forgives nothing.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RUFF = (("ruff", "format", "--check", "."), ("ruff", "check", "."))
MYPY = ("mypy",)
PYTEST = (
    "pytest",
    "--numprocesses=2",
    "--no-loadscope-reorder",
    "--max-worker-restart=0",  # a new process would wait for ever for the tests of one that died
    "--instafail",
)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # threads of two processes would wait for each other's cores
    "PYTHONDONTWRITEBYTECODE": "",  # each process of each server would compile the same modules
}
LOW_PRIORITY = 15  # that of Ray's workers
FAILED, NO_TESTS = 1, 5  # exit codes of pytest: tests failed, all tests were deselected
MAX_FAILED = 10  # pyproject.toml's --maxfail: so many are no accident
CRASH = "crashed while running"  # xdist's words; what the process had left did not run
N_SLOWEST = 15


@dataclass
class Results:
    """The results of all stages together."""

    codes: list[int] = field(default_factory=list)
    tests: Counter[str] = field(default_factory=Counter)
    files: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # seconds
    failures: dict[str, str] = field(default_factory=dict)  # what each failed test said
    flaky: dict[str, str] = field(default_factory=dict)  # what it had said before it passed

    def add_report(self, path: Path) -> None:
        """Adds pytest's report in JUnit's format."""
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            outcome = _outcome({child.tag for child in case})
            file = _file(case.get("classname", ""))
            self.tests[outcome] += 1
            self.files[file] += float(case.get("time", 0))
            if outcome == "failed":
                self.failures[f"{file}::{case.get('name')}"] = _said(case)

    def may_be_flaky(self) -> bool:
        """Whether a few tests failed and nothing else did: no crash, no type, no file unread."""
        only_tests = set(self.codes) <= {0, FAILED} and self.codes.count(FAILED) == 1
        crashed = any(CRASH in text for text in self.failures.values())
        return only_tests and 0 < len(self.failures) < MAX_FAILED and not crashed

    def add_second_run(self, second: "Results") -> None:
        """Forgives what failed at first, where a second run of exactly that had no failure."""
        if any(second.codes) or second.tests["passed"] != len(self.failures):
            return
        self.codes = [0]
        self.tests.pop("failed")
        self.tests["passed"] += len(self.failures)
        self.flaky, self.failures = self.failures, {}

    def print(self) -> None:
        print(f"== slowest {N_SLOWEST} files")
        slowest = sorted(self.files.items(), key=lambda item: -item[1])[:N_SLOWEST]
        for name, seconds in slowest:
            print(f"{seconds:8.1f} s  {name}")
        for name, text in self.flaky.items():
            print(f"== FLAKY {name} failed, and passed alone. The failure was:\n{text}")
        counts = (f"{self.tests[name]} {name}" for name in ("passed", "failed", "skipped"))
        print(", ".join(counts), flush=True)


def _said(case: ElementTree.Element) -> str:
    parts = [text for child in case for text in (child.get("message"), child.text) if text]
    return "\n".join(parts)


def _outcome(tags: set[str]) -> str:
    if tags & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in tags else "passed"


def _file(classname: str) -> str:
    """The path of a test's file: JUnit's format has dots, and a class may follow."""
    found = re.match(r".*?\btest_\w+", classname)
    return found[0].replace(".", "/") + ".py" if found else classname


def python(*command: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *command)


def run(command: Sequence[str]) -> int:
    print("==", *command, flush=True)
    began = time.monotonic()
    code = subprocess.run(python(*command), cwd=ROOT, env=os.environ | ENVIRONMENT).returncode
    print(f"== {command[0]}: {time.monotonic() - began:.0f} s", flush=True)
    return code


@contextmanager
def beside(command: Sequence[str], results: Results) -> Iterator[None]:
    """Runs a command while the block does, and then prints what it had to say."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(python(*command), cwd=ROOT, stdout=said, stderr=said)
        os.setpriority(os.PRIO_PROCESS, process.pid, LOW_PRIORITY)
        try:
            yield
            results.codes.append(process.wait())
        finally:
            process.kill()
        said.seek(0)
        print("==", *command)
        print(said.read(), end="", flush=True)


def run_tests(command: Sequence[str], results: Results, cache: Path) -> None:
    """Runs pytest, which keeps in the folder `cache` what failed."""
    report = cache / "report.xml"
    report.unlink(missing_ok=True)
    code = run((*command, f"--junitxml={report}", "-o", f"cache_dir={cache}"))
    results.codes.append(0 if code == NO_TESTS else code)
    if report.exists():
        results.add_report(report)


def run_failed_again(arguments: Sequence[str], results: Results, cache: Path) -> None:
    second = Results()
    run_tests(("pytest", "--last-failed", *arguments), second, cache)
    results.add_second_run(second)


def main() -> int:
    # What this starts hears of Ctrl-C too; pytest then ends the servers of its tests.
    signal.signal(signal.SIGINT, lambda *_: None)
    results = Results(codes=[run(command) for command in RUFF])
    if any(results.codes):
        return max(results.codes)
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as cache:
        with beside(MYPY, results):
            run_tests((*PYTEST, *arguments), results, Path(cache))
        if "--exhaustive" not in arguments and results.may_be_flaky():
            run_failed_again(arguments, results, Path(cache))
    results.print()
    complete = results.tests and not any(results.codes) and not results.tests["failed"]
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
