"""The additions of NvExt to an answer: Dynamo's annotations and its `nvext` object."""

import time
from collections.abc import Callable, Sequence

from deployments.contract.errors import refused
from deployments.ingress.generation.response_builder import Usage
from deployments.ingress.http.sse import annotation, encode
from deployments.openai.fields.nvext import NvExt
from deployments.openai.request_headers import RequestHeaders
from deployments.text.stream import TextDelta

# Fields of a single choice: `nvext` cannot hold those of several.
OF_ONE_CHOICE = ("completion_token_ids", "stop_reason")
NOTHING_ASKED = NvExt()


class NvextOutput:
    """Annotations are SSE events of a stream. A unary answer has none, as in Dynamo.

    They have a fixed order, whatever their order in the request. The `nvext` object comes with the
    last of `choices` to end. `empty_chunk` makes a chunk without text. `timing` has the times that
    an ingress can measure; the first token's is measured only in streams.
    """

    def __init__(
        self,
        nvext: NvExt | None,
        prompts: Sequence[tuple[str, Sequence[int]]],
        choices: int,
        headers: RequestHeaders,
        empty_chunk: Callable[[], bytes],
    ) -> None:
        asked = nvext or NOTHING_ASKED
        self._annotations = frozenset(asked.annotations or ())
        self._fields = tuple(dict.fromkeys(asked.extra_fields or ()))
        self._prompts = prompts
        self._unfinished = choices
        self._empty_chunk = empty_chunk
        self._headers = headers
        self._received_ms = int((time.time() - time.monotonic() + headers.received_at) * 1000)
        self._first_token: float | None = None
        self._completion_ids: list[int] = []
        self._stop: str | int | None = None
        self._check(choices)

    def _check(self, choices: int) -> None:
        """Refuses fields that have one value, where there are several choices or prompts."""
        for name in self._fields:
            several = choices > 1 if name in OF_ONE_CHOICE else len(self._prompts) > 1
            if several and name != "timing":
                message = f"`nvext.extra_fields`: {name} requires a request for one choice"
                raise refused(message, "nvext.extra_fields")

    def begin(self) -> bytes:
        """The annotations before the first chunk."""
        events = []
        if "formatted_prompt" in self._annotations:
            events += [self._annotation("formatted_prompt", text) for text, _ in self._prompts]
        if "token_ids" in self._annotations:
            listed = (encode(list(ids)).decode() for _, ids in self._prompts)
            events += [self._annotation("token_ids", ids) for ids in listed]
        if "request_id" in self._annotations:
            events.append(self._annotation("request_id", self._headers.request_id))
        return b"".join(events)

    def add_streamed(self, delta: TextDelta) -> None:
        if self._first_token is None and delta.output_tokens:
            self._first_token = time.monotonic()
        self.add(delta)

    def add(self, delta: TextDelta) -> None:
        if self._fields:
            self._completion_ids += delta.token_ids
            self._stop = delta.stop
        self._unfinished -= delta.finish_reason is not None

    def end(self, usage: Usage) -> bytes:
        """The annotation after the last chunk."""
        if "timing" not in self._annotations:
            return b""
        return self._annotation("timing", encode(self._timing(usage)).decode())

    def _annotation(self, name: str, payload: str) -> bytes:
        return annotation(name, payload, self._empty_chunk())

    def answer(self, usage: Usage) -> dict[str, object]:
        """The fields of the body, or of the last chunk of a choice."""
        if not self._fields or self._unfinished:
            return {}
        values: dict[str, object] = {
            "timing": self._timing(usage),
            "prompt_token_ids": list(self._prompts[0][1]),
            "completion_token_ids": self._completion_ids,
            "stop_reason": self._stop,
        }
        return {"nvext": {name: values[name] for name in self._fields}}

    def _timing(self, usage: Usage) -> dict[str, object]:
        timing: dict[str, object] = {"request_received_ms": self._received_ms}
        if self._first_token is not None:
            timing["ttft_ms"] = self._since_begin_ms(self._first_token)
        timing["total_time_ms"] = self._since_begin_ms(time.monotonic())
        timing["kv_hit_rate"] = round(usage.cached_tokens / usage.prompt_tokens, 4)
        return timing

    def _since_begin_ms(self, instant: float) -> float:
        return round((instant - self._headers.received_at) * 1000, 3)
