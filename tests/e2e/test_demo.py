"""What a newcomer meets: `serve.yaml` as it stands, and the model that comes with it."""

from pathlib import Path

import openai

from tests.e2e.server import Server


def test_the_first_answer_is_english(tmp_path: Path) -> None:
    with Server(tmp_path, {}) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        assert [model.id for model in client.models.list()] == ["manta-demo"]
        stream = client.chat.completions.create(
            model="manta-demo",
            messages=[{"role": "user", "content": "What is the capital of France?"}],
            temperature=0,
            stream=True,
        )
        chunks = list(stream)
        client.close()
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"
