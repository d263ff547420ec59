"""llama-server's own completions: an object with its settings, whose stream tells it in parts."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import httpx

from deployments.contract.model_card import ModelCard
from tests.ingress.engines import Script
from tests.ingress.protocols.protocol import Protocol, Said
from tests.text.cards import card

PARTIAL = ["index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"]


class Native(Protocol):
    name = "native"
    path = "/completion"
    hello: ClassVar[Mapping[str, Any]] = {"prompt": "Hello"}
    card = card()
    words: ClassVar[Mapping[str, str]] = {"limit": "n_predict"}
    several: ClassVar[Mapping[str, Any]] = {"n": 2}

    def events_of(self, response: httpx.Response) -> list[Any]:
        assert response.headers["content-type"].startswith("text/event-stream")
        return data_of(response.text)

    def says(self, script: Script, /, *cards: ModelCard, **fields: Any) -> Said:
        return super().says(script, *cards, **{"return_tokens": True, "seed": 3, **fields})

    def told(self, body: Any) -> Any:
        return still(body if isinstance(body, list) else [body])

    def fold(self, events: list[Any]) -> Any:
        finals = {event["index"]: event for event in events if event["stop"]}
        for event in events:
            if not event["stop"]:
                assert list(event)[:7] == PARTIAL
                final = finals[event["index"]]
                final["content"] += event["content"]
                final["tokens"] += event["tokens"]
                if "completion_probabilities" in event:
                    final.setdefault("completion_probabilities", [])
                    final["completion_probabilities"] += event["completion_probabilities"]
        return still([finals[index] for index in sorted(finals)])

    def said(self, told: Any) -> Said:
        first = told[0]
        endings = {"eos": "end", "limit": "limit", "word": f"stop {first['stopping_word']}"}
        return Said(
            text=first["content"],
            ending=endings[first["stop_type"]],
            prompt_tokens=first["tokens_evaluated"],
            cached_tokens=first["cache_n"],
            output_tokens=first["tokens_predicted"],
        )

    def form(self, schema: object) -> dict[str, Any]:
        return {"json_schema": schema}


def data_of(stream: str) -> list[Any]:
    frames = stream.split("\n\n")
    assert frames[-1] == ""
    assert all(frame.startswith("data: ") for frame in frames[:-1])
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]


def still(results: list[Any]) -> list[Any]:
    """Removes what may differ between two runs: times, and that one was streamed."""
    for result in results:
        result["cache_n"] = result.pop("timings")["cache_n"]
        del result["generation_settings"]["stream"]
    return results


NATIVE = Native()
