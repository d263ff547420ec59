"""The TypeScript SDKs against a real `serve run`: their compiler checks what the server sent."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.asked import ASKED, ask, ask_stream
from tests.e2e.shared.models import LISTED

SOURCES = Path(__file__).parent / "typescript"
IMPORTS = """import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
// Its reason is null until the last, as the API itself has it, though not its type.
type Choice = OpenAI.CompletionChoice;
type Reason = { finish_reason: Choice["finish_reason"] | null };
type ChunkChoice = Omit<Choice, "finish_reason"> & Reason;
type CompletionChunk = Omit<OpenAI.Completion, "choices"> & { choices: ChunkChoice[] };
// Fields that a type does not name are allowed; those that it names must fit.
// The SDK itself gives a response its `output_text`.
const is = <T>() => <U extends T>(value: U): U => value;
"""
TSC = ("--strict", "--noEmit", "--skipLibCheck", "--module", "nodenext", "--target", "es2022")
OFFLINE = re.compile(
    "ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|ENETUNREACH|E5[0-9]{2}"
)

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None, reason="needs Node and npm"
)


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the SDKs and the compiler."""
    folder = tmp_path_factory.mktemp("typescript")
    for name in ("package.json", "accumulate.mjs"):
        shutil.copy(SOURCES / name, folder)
    try:
        run(folder, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock")
    except AssertionError as failure:
        if OFFLINE.search(str(failure)):
            pytest.skip("npm reaches no registry")
        raise
    except subprocess.TimeoutExpired:
        pytest.skip("npm gets no answer in time")
    return folder


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def typed(name: str, value: Any) -> str:
    return f"is<{name}>()({json.dumps(value)});".replace(
        '"object": "response", ', '"object": "response", "output_text": "", '
    )


@pytest.mark.exhaustive  # the Python SDKs' types are as strict in test_protocols.py
@THROUGHPUT
def test_what_was_sent_compiles_as_the_sdks_types(server: Server, project: Path) -> None:
    lines = [IMPORTS]
    for asked in ASKED:
        lines.append(typed(asked.unary, ask(server.url, asked)))
        lines += [typed(asked.event, event) for event in ask_stream(server.url, asked)]
    (project / "sent.ts").write_text("\n".join(lines))
    run(project, "node_modules/.bin/tsc", *TSC, "sent.ts")


@pytest.mark.exhaustive
@THROUGHPUT
def test_the_compiler_would_find_a_wrong_answer(server: Server, project: Path) -> None:
    asked = ASKED[0]
    answer = ask(server.url, asked)
    answer["choices"][0]["finish_reason"] = "bored"
    (project / "wrong.ts").write_text(IMPORTS + typed(asked.unary, answer))
    with pytest.raises(AssertionError, match="bored"):
        run(project, "node_modules/.bin/tsc", *TSC, "wrong.ts")


@pytest.mark.exhaustive  # test_protocols.py says it of Python's SDKs
def test_the_sdks_accumulate_streams_to_the_unary_answers(server: Server, project: Path) -> None:
    told = json.loads(run(project, "node", "accumulate.mjs", server.url))
    for name, said in SAID.items():
        unary, streamed = told[name]
        assert said(unary) == said(streamed), name
    for name in ("chatCalls", "responseCalls", "messageCalls"):
        assert set(SAID[name](told[name][0])[0]) == {"city", "days"}
    assert told["counted"]["input_tokens"] > 0
    assert told["models"] == told["anthropicModels"] == list(LISTED)
    assert [(failure["name"], failure["status"]) for failure in told["failures"]] == [
        ("NotFoundError", 404),
        ("BadRequestError", 400),
    ] * 2


def chat_text(answer: Any) -> Any:
    return answer["choices"][0]["message"]["content"]


def chat_calls(answer: Any) -> Any:
    calls = answer["choices"][0]["message"]["tool_calls"]
    return [json.loads(call["function"]["arguments"]) for call in calls]


def response_text(answer: Any) -> Any:
    return [part["text"] for item in answer["output"] for part in item["content"]]


def response_calls(answer: Any) -> Any:
    return [json.loads(item["arguments"]) for item in answer["output"]]


def message_text(answer: Any) -> Any:
    return [block["text"] for block in answer["content"]]


def message_calls(answer: Any) -> Any:
    return [block["input"] for block in answer["content"]]


SAID = {
    "chat": chat_text,
    "chatCalls": chat_calls,
    "response": response_text,
    "responseCalls": response_calls,
    "message": message_text,
    "messageCalls": message_calls,
}
