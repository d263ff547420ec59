"""The one check, for people and for CI: `python -m tests`.

Arguments go to pytest. Without a path two processes ("lanes") share the tests: one starts servers
and often waits for them, the other computes. Types are checked beside, in the time that both leave.
With a path pytest-xdist shares its files among two processes, unless they start servers.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RUFF = (("ruff", "format", "--check", "."), ("ruff", "check", "."))
MYPY = ("mypy",)
PYTEST = ("pytest", "--instafail")  # a failure is printed at once
SERVERS = ("tests/e2e", "tests/web/browser", "tests/serve_app/demo")
LIVE = ("tests/live",)  # Ray clusters; they balance the lanes
REST = ("tests", *(f"--ignore={path}" for path in SERVERS + LIVE))
LOW_PRIORITY = 15  # that of Ray's workers
TWO_PROCESSES = ("-n2", "--dist=loadfile")
NO_TESTS = 5  # pytest's exit code when all tests were deselected
N_SLOWEST = 15


@dataclass
class Results:
    """What all stages together came to."""

    codes: list[int] = field(default_factory=list)
    tests: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage
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
        print("== stages")
        for name, seconds in self.seconds.items():
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


@dataclass
class Lane:
    """Stages that run one after the other; each line of their output begins with `prefix`."""

    stages: Mapping[str, Sequence[str]]
    results: Results
    prefix: str = ""
    niceness: int = 0

    def run(self) -> None:
        for name, command in self.stages.items():
            began = time.monotonic()
            code = self._run_stage(command)
            self.results.seconds[name] = time.monotonic() - began
            self.results.codes.append(code)

    def _run_stage(self, command: Sequence[str]) -> int:
        self._say("==", *command)
        if command[0] != "pytest":
            return self._run(command)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            code = self._run([*command, f"--junitxml={report}"])
            if report.exists():
                self.results.add_report(report)
        return 0 if code == NO_TESTS else code

    def _run(self, command: Sequence[str]) -> int:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=lambda: os.nice(self.niceness),
        )
        assert process.stdout is not None
        for line in process.stdout:
            self._say(line.rstrip())
        return process.wait()

    def _say(self, *words: str) -> None:
        print(self.prefix + " ".join(words) + "\n", end="", flush=True)


def lanes(arguments: Sequence[str], results: Results) -> Iterator[Lane]:
    paths = [path for one in arguments if (path := ROOT / one.partition("::")[0]).exists()]
    if paths:
        processes = () if any(map(_starts_servers, paths)) else TWO_PROCESSES
        yield Lane({"mypy": MYPY, "pytest": (*PYTEST, *processes, *arguments)}, results)
        return
    servers, rest, live = ((*PYTEST, *those, *arguments) for those in (SERVERS, REST, LIVE))
    yield Lane({"servers": servers}, results, "servers| ")
    yield Lane({"rest": rest, "live": live}, results, "   rest| ")
    yield Lane({"mypy": MYPY}, results, "   mypy| ", LOW_PRIORITY)


def _starts_servers(path: Path) -> bool:
    folders = [ROOT / one for one in SERVERS + LIVE]
    return any(path.is_relative_to(one) or one.is_relative_to(path) for one in folders)


def main() -> int:
    results = Results()
    Lane({" ".join(command): command for command in RUFF}, results).run()
    if any(results.codes):
        return max(results.codes)
    threads = [threading.Thread(target=lane.run) for lane in lanes(sys.argv[1:], results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.print()
    complete = results.tests and not any(results.codes) and not results.tests["failed"]
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
