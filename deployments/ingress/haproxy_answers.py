"""Runs HAProxy on the file that Serve wrote for it, with answers for applications that have no
replica yet. A program of its own, which needs no packages: Serve calls it in HAProxy's place.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

BODIES = "MANTA_STARTING_ANSWERS"  # as in proxy_answers
BINARY = "MANTA_HAPROXY_BINARY"
BEFORE = "    # Static routing based on path prefixes"  # of what Serve writes
ROUTES = re.compile(r"^\s*acl (is_\S+) path (/\S*)$", re.MULTILINE)
ANSWER = "    http-request return status 503 content-type application/json hdr retry-after 2 string"


def completed(config: str, bodies: Mapping[str, str]) -> str:
    """Each application that is not there answers for its paths, but not for those of others."""
    there = {prefix: name for name, prefix in ROUTES.findall(config)}
    rules = []
    for prefix in sorted(bodies.keys() - there.keys(), key=len, reverse=True):
        body = bodies[prefix].replace("'", "'\\''")
        others = [f"!{name}" for other, name in there.items() if len(other) > len(prefix)]
        below = "{ path_beg / }" if prefix == "/" else f"{{ path {prefix} }}"
        rules.append(" ".join([ANSWER, f"'{body}'", "if", below, *others]))
        if prefix != "/":
            below = f"{{ path_beg {prefix}/ }}"
            rules.append(" ".join([ANSWER, f"'{body}'", "if", below, *others]))
    return config.replace(BEFORE, "\n".join([*rules, BEFORE]), 1)


def main() -> None:
    path = Path(sys.argv[sys.argv.index("-f") + 1])
    path.write_text(completed(path.read_text(), json.loads(os.environ[BODIES])))
    os.execv(os.environ[BINARY], [os.environ[BINARY], *sys.argv[1:]])


if __name__ == "__main__":
    main()
