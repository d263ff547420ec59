"""Runs a search in a process of its own, which is killed when its time is over.

Nothing else ends some patterns: `regex` looks at its timeout only now and then.
"""

import json
from functools import partial
from typing import Any, BinaryIO

from deployments.llama.tools.folder import Folder, Path, ToolError
from deployments.llama.tools.search import FILE_GLOB_SEARCH, GREP_SEARCH
from deployments.llama.tools.tool import Answer, BuiltInTool, ToolContext
from deployments.llama.tools.walk import MAX_SEARCH_S
from deployments.sandbox.process import JobProcess, ProcessDiedError
from deployments.sandbox.worker import serve

SEARCHES: dict[str, BuiltInTool[Any]] = {
    tool.name: tool for tool in (FILE_GLOB_SEARCH, GREP_SEARCH)
}
MODULE = "deployments.llama.tools.search_process"
NICENESS = 10
MAX_MEMORY_BYTES = 1 << 30


def search(name: str, params: dict[str, object], context: ToolContext) -> Answer:
    """Blocks for MAX_SEARCH_S at most. Raises ToolError."""
    asked = {"name": name, "params": params, "root": context.folder.root, "cwd": context.cwd}
    process = JobProcess(MODULE, MAX_SEARCH_S)
    try:
        return process.run(partial(_exchanged, json.dumps(asked).encode() + b"\n"))
    except ProcessDiedError as death:
        late = f"the search took more than {MAX_SEARCH_S:g} seconds"
        failed = "the search failed: it may have needed too much memory"
        raise ToolError(late if death.is_late else failed) from None
    finally:
        process.close()


def _exchanged(line: bytes, jobs: BinaryIO, answers: BinaryIO) -> Answer:
    jobs.write(line)
    jobs.flush()
    answer: Answer = json.loads(answers.readline())
    return answer


def answer_of(asked: dict[str, Any]) -> Answer:
    """Returns the answer that `search` asks for.

    A failure is an answer, too, in the form that a tool gives it.
    """
    tool = SEARCHES[asked["name"]]
    cwd: Path = tuple(asked["cwd"])
    context = ToolContext(folder=Folder(asked["root"]), cwd=cwd)
    try:
        return tool.call(tool.params.model_validate(asked["params"]), context)
    except ToolError as failure:
        return {"error": str(failure)}


def _write_answer(line: bytes, jobs: BinaryIO, answers: BinaryIO) -> None:
    answers.write(json.dumps(answer_of(json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    serve(_write_answer, niceness=NICENESS, max_memory_bytes=MAX_MEMORY_BYTES)
