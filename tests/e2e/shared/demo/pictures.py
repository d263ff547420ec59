"""Asks the demo that sees about pictures that it was never shown, by three SDKs."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import Any

import anthropic
import openai
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from deployments.text.reply import Reply
from serve_app.demo.evaluation.scoring import fits
from serve_app.demo.training.vision.corpus import VisionCase, cases
from serve_app.demo.training.vision.network import TOWER

MODEL = "manta-demo-vision"
MAX_TOKENS = 40
KINDS = ("whole pictures", "left, right, above, below")
SEED = 2  # the evaluation has another one
SECOND = "How many shapes are there?"  # of the same picture, in a conversation of its own


@dataclass(frozen=True)
class Answer:
    text: str
    cached_tokens: int


Ask = Callable[[str, bytes, str], Answer]  # a server's address, a PNG, a question


def some_cases() -> Sequence[VisionCase]:
    return [case for kind in KINDS for case in islice(cases(kind, SEED), 5)]


def png(case: VisionCase) -> bytes:
    file = BytesIO()
    case.picture().save(file, "PNG")
    return file.getvalue()


def is_right(case: VisionCase, answer: Answer) -> bool:
    return fits(case.expect, Reply(answer.text, "", ()))


def by_openai(url: str, picture: bytes, question: str) -> Answer:
    text, cached = "", 0
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        for chunk in client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": _parts(picture, question)}],
            temperature=0,
            max_tokens=MAX_TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        ):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            if chunk.usage is not None and chunk.usage.prompt_tokens_details is not None:
                cached = chunk.usage.prompt_tokens_details.cached_tokens or 0
                assert chunk.usage.prompt_tokens > TOWER.patches
    return Answer(text, cached)


def by_anthropic(url: str, picture: bytes, question: str) -> Answer:
    with (
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
        client.messages.stream(
            model=MODEL,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": b64encode(picture).decode(),
                            },
                        },
                        {"type": "text", "text": question},
                    ],
                }
            ],
            max_tokens=MAX_TOKENS,
            extra_body={"temperature": 0},
        ) as stream,
    ):
        text = "".join(stream.text_stream)
        usage = stream.get_final_message().usage
    cached = usage.cache_read_input_tokens or 0
    assert usage.input_tokens + cached > TOWER.patches
    return Answer(text, cached)


def by_langchain(url: str, picture: bytes, question: str) -> Answer:
    model = ChatOpenAI(
        model=MODEL,
        base_url=f"{url}/v1",
        api_key=SecretStr("none"),
        temperature=0,
        max_completion_tokens=MAX_TOKENS,
        max_retries=0,
        stream_usage=True,
    )
    text, cached = "", 0
    for chunk in model.stream([HumanMessage(content=_parts(picture, question))]):
        assert isinstance(chunk.content, str)
        text += chunk.content
        if chunk.usage_metadata is not None:
            assert chunk.usage_metadata["input_tokens"] > TOWER.patches
            cached = chunk.usage_metadata.get("input_token_details", {}).get("cache_read", 0)
    return Answer(text, cached)


def _parts(picture: bytes, question: str) -> Any:
    url = f"data:image/png;base64,{b64encode(picture).decode()}"
    return [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": question},
    ]


SDKS: dict[str, Ask] = {
    "openai": by_openai,
    "anthropic": by_anthropic,
    "langchain": by_langchain,
}
