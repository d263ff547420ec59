"""OpenAI's stream chunks and bodies. Fields that all chunks share are encoded once a response."""

import time
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from deployments.contract.errors import RequestError
from deployments.ingress.error_bodies import openai_envelope
from deployments.ingress.fingerprint import system_fingerprint
from deployments.ingress.generation.response_builder import Usage
from deployments.ingress.http.sse import DONE, data, encode
from deployments.openai.fields.common import GenerationFields

NOTHING: Mapping[str, object] = MappingProxyType({})


class ChunkEncoder:
    """`kind` and `chunk_kind` are the `object` of the unary body and of a chunk."""

    def __init__(
        self,
        fields: GenerationFields,
        model: str,
        response_id: str,
        *,
        kind: str,
        chunk_kind: str,
    ) -> None:
        self._running = fields.wants_running_usage
        self._final = fields.wants_usage
        self._body = {
            "id": response_id,
            "object": kind,
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": system_fingerprint(),
        }
        if fields.service_tier is not None:
            self._body["service_tier"] = "default"
        self._chunk_kind = chunk_kind
        self._tail = b',"usage":null}\n\n' if self._final else b"}\n\n"

    @cached_property
    def _head(self) -> bytes:
        head = encode({**self._body, "object": self._chunk_kind})
        return b"data: " + head.removesuffix(b"}") + b',"choices":['

    def chunk(self, choice: bytes, usage: Usage | None = None, trailing: bytes = b"") -> bytes:
        """`trailing` is what `trailing_fields` makes of fields that follow `choices`."""
        tail = self._with(usage) if usage is not None and self._running else self._tail
        return b"".join((self._head, choice, b"]", trailing, tail))

    def end(self, usage: Usage, trailing: bytes = b"") -> bytes:
        return b"".join((self._head, b"]", trailing, self._with(usage)) if self._final else ())

    def body(
        self, choices: list[object], usage: Usage, trailing: Mapping[str, object] = NOTHING
    ) -> bytes:
        counted = usage_object(usage)
        return encode({**self._body, "choices": choices, "usage": counted, **trailing})

    def _with(self, usage: Usage) -> bytes:
        return b',"usage":' + encode(usage_object(usage)) + b"}\n\n"


def usage_object(usage: Usage) -> object:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, **usage.cached_details},
        "completion_tokens_details": {"reasoning_tokens": usage.thought_tokens},
    }


def trailing_fields(fields: Mapping[str, object]) -> bytes:
    """The fields as JSON without braces, after a comma: they continue an object."""
    return b"," + encode(fields)[1:-1] if fields else b""


def error_events(error: RequestError) -> bytes:
    _, body = openai_envelope(error, "")
    return data(encode(body)) + DONE
