"""A newcomer's first server: `serve.yaml` as it stands, and the model that comes with it."""

import json
import subprocess
from collections.abc import Iterator

import openai
import pytest

from serve_app.router_arguments import DEMO_NAME, SEEING_DEMO_NAME
from tests.e2e.server import Server
from tests.pages import ADDRESS, Block, blocks

# tests/e2e/shared/demo has the answers of its models, tests/serve_app which they are,
# tests/router and tests/openai the names that they answer to.
pytestmark = pytest.mark.exhaustive


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
    assert [model.id for model in client.models.list()] == [DEMO_NAME, SEEING_DEMO_NAME]
    answer = client.chat.completions.create(
        model=DEMO_NAME,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
    )
    assert "Paris" in (answer.choices[0].message.content or "")


def test_the_only_model_may_answer_to_any_name(client: openai.OpenAI, server: Server) -> None:
    answer = client.completions.create(model="gpt-5", prompt="The", max_tokens=1)
    assert answer.model == client.models.retrieve("gpt-5").id == DEMO_NAME
    body = {"model": "gpt-5", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    for path in ("/chat/completions/", "/v1/messages/"):  # where Serve leads a path with a slash
        assert server.http.post(path, json=body).json()["model"] == DEMO_NAME
    assert server.http.get("/props").json()["default_generation_settings"]["n_ctx"] > 0
    refused = server.http.post("/models/unload", json={"model": "gpt-5"})
    assert refused.status_code == 404


@pytest.mark.parametrize("block", [b for b in blocks("sh") if b.asks_a_server], ids=str)
def test_a_shell_block_of_a_page_gets_an_answer(server: Server, block: Block) -> None:
    command = block.text.replace(ADDRESS, server.url)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]
