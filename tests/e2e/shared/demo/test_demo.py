"""The models that come with it answer: in English, with calls, about pictures, as pages show."""

import json
import subprocess

import jsonschema
import openai
import pytest
from openai.types.chat import ChatCompletionToolParam

from serve_app.demo.training.vision.network import TOWER
from serve_app.router_arguments import DEMO_NAME
from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.demo.pictures import SDKS, SECOND, is_right, png, some_cases
from tests.pages import ADDRESS, Block, blocks

pytestmark = THROUGHPUT  # tests/e2e/test_demo.py has the other proxy

PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
# Its marks are tokens of the demo model's that are not special, as in Qwen's vocabularies.
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": PARAMETERS},
}


def test_the_answer_is_english(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=DEMO_NAME,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        stream=True,
    )
    chunks = list(stream)
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_serve_leads_a_path_with_a_slash_at_its_end(server: Server) -> None:
    body = {"model": DEMO_NAME, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    for path in ("/chat/completions/", "/v1/messages/"):
        assert server.http.post(path, json=body).json()["model"] == DEMO_NAME


def test_a_forced_call_fits_its_definition(client: openai.OpenAI) -> None:
    forced = client.chat.completions.create(
        model=DEMO_NAME,
        messages=[{"role": "user", "content": "What is the weather in Rome?"}],
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    calls = forced.choices[0].message.tool_calls
    assert calls is not None
    (call,) = calls
    assert call.type == "function"
    jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)


@pytest.mark.parametrize("sdk", SDKS)
def test_the_demo_that_sees_answers_about_pictures_it_was_never_shown(
    server: Server, sdk: str
) -> None:
    """A picture of which it was asked before comes from its cache."""
    asked = some_cases()
    right = []
    for case in asked:
        right.append(is_right(case, SDKS[sdk](server.url, png(case), case.question)))
        assert SDKS[sdk](server.url, png(case), SECOND).cached_tokens >= TOWER.patches
    assert sum(right) >= 9, [case for case, ok in zip(asked, right, strict=True) if not ok]


def test_a_thought_without_end_is_ended_while_it_streams(
    server: Server, client: openai.OpenAI
) -> None:
    def token_id(mark: str) -> int:
        body = {"model": DEMO_NAME, "content": mark}
        [found] = server.http.post("/tokenize", json=body).json()["tokens"]
        return int(found)

    endless = {str(token_id(mark)): -100 for mark in ("</think>", "<|im_end|>", "<|endoftext|>")}
    stream = client.chat.completions.create(
        model=DEMO_NAME,
        messages=[{"role": "user", "content": "Think first: what is 2 plus 3?"}],
        reasoning_effort="high",
        logit_bias=endless,
        max_tokens=1500,
        temperature=0,
        stream=True,
        extra_body={"reasoning_control": True},
    )
    thought = answer = ""
    told: dict[str, object] = {}
    for chunk in stream:
        delta = chunk.choices[0].delta
        thought += getattr(delta, "reasoning_content", None) or ""
        answer += delta.content or ""
        if thought and not told:
            body = {"id": chunk.id, "action": "reasoning_end"}
            told = server.http.post("/v1/chat/completions/control", json=body).json()
        if answer:
            break
    stream.close()
    assert told == {"success": True}
    assert answer
    assert "</think>" not in thought


@pytest.mark.parametrize("block", [b for b in blocks("python") if b.asks_a_server], ids=str)
def test_a_python_block_of_a_page_gets_an_answer(
    server: Server, block: Block, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(block.text.replace(ADDRESS, server.url), str(block), "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("block", [b for b in blocks("sh") if b.asks_a_server], ids=str)
def test_a_shell_block_of_a_page_gets_an_answer(server: Server, block: Block) -> None:
    """The block names no model. A newcomer's server has but this one to answer it."""
    named = block.text.replace('{"', f'{{"model": "{DEMO_NAME}", "', 1)
    command = named.replace(ADDRESS, server.url)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]
