"""What a newcomer meets: `serve.yaml` as it stands, and the model that comes with it."""

import json
from pathlib import Path

import jsonschema
import openai
from openai.types.chat import ChatCompletionToolParam

from tests.e2e.server import Server

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
        forced = client.chat.completions.create(
            model="manta-demo",
            messages=[{"role": "user", "content": "What is the weather in Rome?"}],
            tools=[WEATHER],
            tool_choice="required",
            parallel_tool_calls=False,
        )
        client.close()
    calls = forced.choices[0].message.tool_calls
    assert calls is not None
    (call,) = calls
    assert call.type == "function"
    jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"
