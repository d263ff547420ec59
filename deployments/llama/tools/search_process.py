"""Runs a search in a process of its own, which is killed when its time is over.

Nothing else ends some patterns: `regex` looks at its timeout only now and then.
"""

import json
import os
import resource
import subprocess
import sys
from typing import Any

from deployments.llama.tools.folder import Folder, Path, ToolError
from deployments.llama.tools.search import FILE_GLOB_SEARCH, GREP_SEARCH
from deployments.llama.tools.tool import Answer, BuiltInTool, ToolContext
from deployments.llama.tools.walk import MAX_SEARCH_S

SEARCHES: dict[str, BuiltInTool[Any]] = {
    tool.name: tool for tool in (FILE_GLOB_SEARCH, GREP_SEARCH)
}
COMMAND = [sys.executable, "-m", __name__]
NICENESS = 10  # streams come first
MAX_MEMORY_BYTES = 1 << 30


def search(name: str, params: dict[str, object], context: ToolContext) -> Answer:
    """Blocks for MAX_SEARCH_S at most. Raises ToolError."""
    asked = {"name": name, "params": params, "root": context.folder.root, "cwd": context.cwd}
    try:
        done = subprocess.run(
            COMMAND,
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=MAX_SEARCH_S,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"the search took more than {MAX_SEARCH_S:g} seconds") from None
    if done.returncode:
        raise ToolError("the search failed: it may have needed too much memory")
    answer: Answer = json.loads(done.stdout)
    return answer


def answer_of(asked: dict[str, Any]) -> Answer:
    """What `search` asks for. Also for what fails, as a tool answers it."""
    tool = SEARCHES[asked["name"]]
    cwd: Path = tuple(asked["cwd"])
    context = ToolContext(folder=Folder(asked["root"]), cwd=cwd)
    try:
        return tool.call(tool.params.model_validate(asked["params"]), context)
    except ToolError as failure:
        return {"error": str(failure)}


if __name__ == "__main__":
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    json.dump(answer_of(json.load(sys.stdin)), sys.stdout)
