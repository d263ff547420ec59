"""Images go through the whole server to a model that sees, in every protocol."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anthropic
import numpy as np
import openai
import pytest
import torch
from PIL import Image

from deployments.media.images import as_png
from tests.e2e.server import Server
from tests.engine.media.checkpoint import load_seeing
from tests.media.serving import base64, data_url

N, PAGE = 24, 16
TEXT = "What is this?"
RENDERED = f"<|im_start|>user\n{TEXT}{{}}<|im_end|>\n<|im_start|>assistant\n"


def picture(seed: int, side: int) -> Image.Image:
    """Draws noise, which no format makes smaller: 1,460 x 1,460 pixels take more than 6 MiB."""
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3))
    return Image.fromarray(pixels.astype(np.uint8))


LARGE, SMALL = picture(1, 1460), picture(2, 90)


@pytest.fixture(scope="module")
def told(presets: Path) -> dict[str, tuple[int, list[int]]]:
    """The number of prompt tokens and the answer's ids for each image, as transformers has them."""
    model, processor = load_seeing(presets.with_name("seeing"))

    def ask(image: Image.Image) -> tuple[int, list[int]]:
        text = RENDERED.format("<image>")
        inputs = processor(text=text, images=[image], return_tensors="pt")
        n = inputs["input_ids"].shape[1]
        with torch.inference_mode():
            found = model.generate(**inputs, max_new_tokens=N, do_sample=False, pad_token_id=0)
        return n, found[0, n:].tolist()

    return {"large": ask(LARGE), "small": ask(SMALL)}


def chat(client: openai.OpenAI, file: bytes) -> Any:
    parts: Any = [
        {"type": "text", "text": TEXT},
        {"type": "image_url", "image_url": {"url": data_url(file)}},
    ]
    return client.chat.completions.create(
        model="seeing",
        messages=[{"role": "user", "content": parts}],
        max_tokens=N,
        temperature=0,
        extra_body={"return_token_ids": True},
    )


def n_encoded(server: Server) -> int:
    replicas: Sequence[Any] = server.http.get("/stats").json()["replicas"]
    return sum(
        int(replica["media_encoded"]) for replica in replicas if replica["model"] == "seeing"
    )


def test_every_protocol_says_of_an_image_what_transformers_says(
    server: Server, client: openai.OpenAI, told: dict[str, tuple[int, list[int]]]
) -> None:
    n, ids = told["small"]
    file = as_png(SMALL)
    answer = chat(client, file)
    assert answer.choices[0].token_ids == ids
    assert answer.usage.prompt_tokens == n
    said = answer.choices[0].message.content
    before = n_encoded(server)
    parts: Any = [
        {"type": "input_text", "text": TEXT},
        {"type": "input_image", "image_url": data_url(file), "detail": "auto"},
    ]
    response = client.responses.create(
        model="seeing",
        input=[{"role": "user", "content": parts}],
        max_output_tokens=N,
        temperature=0,
    )
    assert response.output_text == said
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as other:
        source = {"type": "base64", "media_type": "image/png", "data": base64(file)}
        parts = [{"type": "text", "text": TEXT}, {"type": "image", "source": source}]
        message = other.messages.create(
            model="seeing",
            messages=[{"role": "user", "content": parts}],
            max_tokens=N,
            extra_body={"temperature": 0},
        )
    assert "".join(block.text for block in message.content if block.type == "text") == said
    prompt = {
        "prompt_string": RENDERED.format("<__media__>"),
        "multimodal_data": [base64(file)],
    }
    body = {"model": "seeing", "prompt": prompt, "n_predict": N, "temperature": 0}
    found = server.http.post("/completion", json={**body, "return_tokens": True}).json()
    assert found["tokens"] == ids
    assert n_encoded(server) == before


def test_a_large_image_comes_whole_and_is_encoded_and_computed_once(
    server: Server, client: openai.OpenAI, told: dict[str, tuple[int, list[int]]]
) -> None:
    n, ids = told["large"]
    file = as_png(LARGE)
    assert len(file) > 6 << 20
    before = n_encoded(server)
    first, second = chat(client, file), chat(client, file)
    for answer in (first, second):
        assert answer.choices[0].token_ids == ids
        assert answer.usage.prompt_tokens == n
    assert n_encoded(server) == before + 1
    assert second.usage.prompt_tokens_details.cached_tokens == (n - 1) // PAGE * PAGE


def test_it_tells_that_it_sees_and_others_name_the_part_that_they_can_t_see(
    server: Server, client: openai.OpenAI
) -> None:
    models = {entry["id"]: entry for entry in server.http.get("/v1/models").json()["data"]}
    assert models["seeing"]["architecture"]["input_modalities"] == ["text", "image"]
    props = server.http.get("/props", params={"model": "seeing"}).json()
    assert props["modalities"]["vision"] is True
    part: Any = {"type": "image_url", "image_url": {"url": data_url(as_png(SMALL))}}
    with pytest.raises(openai.BadRequestError, match=r"messages.0..content.0.*'tiny' reads text"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": [part]}])
