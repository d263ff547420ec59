"""An ingress process stays small: neither torch nor ray comes with the protocol."""

import subprocess
import sys

CODE = """
import re, sys
from pathlib import Path
import deployments.openai.routes
heavy = [name for name in ("torch", "ray") if name in sys.modules]
megabytes = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10
sys.exit(str(heavy) if heavy else None if megabytes < 120 else f"{megabytes} MB")
"""


def test_the_protocol_imports_neither_torch_nor_ray() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
