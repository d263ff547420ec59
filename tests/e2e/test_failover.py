"""A replica dies while it answers."""

from pathlib import Path

import openai

from tests.e2e.server import Server


def test_a_stream_outlives_the_replica_that_began_it(checkpoint: Path, tmp_path: Path) -> None:
    settings = {"model": str(checkpoint), "name": "tiny", "dtype": "float32", "num_cpus": 1}
    with Server(tmp_path, settings) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        request = {
            "model": "tiny",
            "prompt": "Once upon a time",
            "max_tokens": 1200,
            "temperature": 0.8,
            "seed": 11,
            "extra_body": {"ignore_eos": True},
        }
        undisturbed = client.completions.create(**request)  # type: ignore[call-overload]
        stream = client.completions.create(  # type: ignore[call-overload]
            **request, stream=True, stream_options={"include_usage": True}
        )
        chunks = []
        for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 20:
                server.kill_model()
        client.close()
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert text == undisturbed.choices[0].text
    assert chunks[-1].usage.completion_tokens == undisturbed.usage.completion_tokens == 1200
