"""A newcomer's first server: `serve.yaml` as it stands, and the model that comes with it."""

import json
import subprocess
from collections.abc import Iterator

import jsonschema
import openai
import pytest
from openai.types.chat import ChatCompletionToolParam

from serve_app.demo.training.vision.network import TOWER
from tests.e2e.pictures import SDKS, SECOND, is_right, png, some_cases
from tests.e2e.server import Server
from tests.pages import ADDRESS, Block, blocks

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


@pytest.fixture(scope="module")
def server(ending: list[Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its own: the file says which models there are."""
    router = {"any_model_name": True}
    with Server(tmp_path_factory.mktemp("demo"), router).ending_later(ending) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_the_first_answer_is_english(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["manta-demo", "manta-demo-vision"]
    stream = client.chat.completions.create(
        model="manta-demo",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        stream=True,
    )
    chunks = list(stream)
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_only_model_may_answer_to_any_name(client: openai.OpenAI, server: Server) -> None:
    answer = client.completions.create(model="gpt-5", prompt="The", max_tokens=1)
    assert answer.model == client.models.retrieve("gpt-5").id == "manta-demo"
    body = {"model": "gpt-5", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    for path in ("/chat/completions/", "/v1/messages/"):  # where Serve leads a path with a slash
        assert server.http.post(path, json=body).json()["model"] == "manta-demo"
    assert server.http.get("/props").json()["default_generation_settings"]["n_ctx"] > 0
    refused = server.http.post("/models/unload", json={"model": "gpt-5"})
    assert refused.status_code == 404


def test_a_forced_call_fits_its_definition(client: openai.OpenAI) -> None:
    forced = client.chat.completions.create(
        model="manta-demo",
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
        [found] = server.http.post("/tokenize", json={"content": mark}).json()["tokens"]
        return int(found)

    endless = {str(token_id(mark)): -100 for mark in ("</think>", "<|im_end|>", "<|endoftext|>")}
    stream = client.chat.completions.create(
        model="manta-demo",
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
    command = block.text.replace(ADDRESS, server.url)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]
