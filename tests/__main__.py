"""The one check, for people and for CI: `python -m tests`.

Arguments go to pytest. Two processes share the tests, as tests/sharing.py says. Types are checked
beside, in the time that both leave.
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
NO_TESTS = 5  # pytest's exit code when all tests were deselected
N_SLOWEST = 15


@dataclass
class Results:
    """What all stages together came to."""

    codes: list[int] = field(default_factory=list)
    tests: Counter[str] = field(default_factory=Counter)
    files: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # seconds

    def add_report(self, path: Path) -> None:
        """Adds pytest's report in JUnit's format."""
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            self.tests[_outcome({child.tag for child in case})] += 1
            self.files[_file(case.get("classname", ""))] += float(case.get("time", 0))

    def print(self) -> None:
        print(f"== slowest {N_SLOWEST} files")
        slowest = sorted(self.files.items(), key=lambda item: -item[1])[:N_SLOWEST]
        for name, seconds in slowest:
            print(f"{seconds:8.1f} s  {name}")
        counts = (f"{self.tests[name]} {name}" for name in ("passed", "failed", "skipped"))
        print(", ".join(counts), flush=True)


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


def run_tests(arguments: Sequence[str], results: Results) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        code = run((*PYTEST, *arguments, f"--junitxml={report}"))
        results.codes.append(0 if code == NO_TESTS else code)
        if report.exists():
            results.add_report(report)


def main() -> int:
    # What this starts hears of Ctrl-C too; pytest then ends the servers of its tests.
    signal.signal(signal.SIGINT, lambda *_: None)
    results = Results(codes=[run(command) for command in RUFF])
    if any(results.codes):
        return max(results.codes)
    with beside(MYPY, results):
        run_tests(sys.argv[1:], results)
    results.print()
    complete = results.tests and not any(results.codes) and not results.tests["failed"]
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
