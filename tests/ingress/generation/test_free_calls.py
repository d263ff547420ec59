"""A random model with tools: every call that opens and is not cut fits its tool, in every protocol.

The real engine answers, and the real applications ask it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any

import httpx
import jsonschema
import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from deployments.anthropic.routes import app as anthropic_app
from deployments.engine.core import EngineCore
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.ingress.generation import sampling_defaults
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.openai.routes import app as openai_app
from deployments.text.dialects.registry import DIALECTS
from tests.anthropic import serving as anthropic
from tests.effort import tries
from tests.engine.drive import roomy
from tests.ingress.engines import ScriptedEngine
from tests.openai.responses import responding
from tests.openai.serving import chunks_of
from tests.text.cards import CHAT_TEMPLATE, byte_level, card, token_id

N_CHATS = tries(3, 100)  # of each of a few dialects
N_CHATS_OF_OTHERS = 20
MAX_TOKENS = tries(200, 300)
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 6},
            "days": {"type": "integer", "minimum": 1, "maximum": 30},
            "unit": {"enum": ["celsius", 'q"<\\']},
        },
        "required": ["city"],
    },
    "move": {
        "type": "object",
        "properties": {
            "at": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            },
            "tags": {"type": "array", "items": {"enum": ["a", "é"]}, "maxItems": 2},
        },
        "required": ["at"],
    },
    "nothing": {},
}
# Without marks nothing opens a call but text: so that it comes at times, it is one token.
OPENINGS = ('{"name": "nothing"', "[nothing(", " to=functions.nothing<|channel|>")
FEW = ("hermes", "mistral", "qwen3_coder", "pythonic")
DIALECTS_TRIED = tries(["hermes", "pythonic"], list(DIALECTS))  # with a mark, and without one


@dataclass(frozen=True)
class Said:
    """An answer as a client reads it."""

    content: str
    calls: tuple[tuple[str, str], ...]  # names, and arguments as JSON
    is_cut: bool
    has_called: bool  # as the reason of its end has it


@cache
def tokenizer_of(dialect: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    tokenizer.add_special_tokens([AddedToken(mark) for mark in DIALECTS[dialect].marks])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in OPENINGS])
    return tokenizer


def talkative(model: LlamaForCausalLM, tokenizer: Tokenizer, dialect: str) -> LlamaForCausalLM:
    """The model that opens calls far more often than it says any other token."""
    with torch.no_grad():
        # One feature that is nearly constant behind the last norm: its weights in the head are a
        # bias.
        model.get_input_embeddings().weight[:, 0] = 10
        model.lm_head.weight[:, 0] = 0
        for text in (*DIALECTS[dialect].marks[:1], *OPENINGS):
            model.lm_head.weight[token_id(tokenizer, text), 0] = 0.4
    return model


@dataclass(frozen=True)
class Clients:
    openai: httpx.AsyncClient
    anthropic: httpx.AsyncClient

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        client = self.anthropic if path == "/v1/messages" else self.openai
        response = await client.post(path, json=body, timeout=None)
        assert response.status_code == 200, response.text
        return response


@asynccontextmanager
async def serving(dialect: str) -> AsyncIterator[Clients]:
    tokenizer = tokenizer_of(dialect)
    size = tokenizer.get_vocab_size()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    model = LlamaForCausalLM(config).float().eval()
    limits = roomy(n_pages=8192, page_size=16, max_running=64)
    ends = frozenset({token_id(tokenizer, "<|im_end|>")})
    loaded = LoadedModel(talkative(model, tokenizer, dialect))
    core = EngineCore(loaded, ends, limits, tokenizer.to_str)
    known = replace(
        card(tokenizer, context_length=4096),
        chat_template=CHAT_TEMPLATE + "{% if tools %}{% endif %}",
        dialect=dialect,
    )
    played = ScriptedEngine(core.stream, known)
    apps = [made(played, Metrics(), IngressSettings()) for made in (openai_app, anthropic_app)]
    clients = [
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://manta")
        for app in apps
    ]
    try:
        async with clients[0], clients[1]:
            yield Clients(*clients)
    finally:
        core.shutdown()


async def chat(clients: Clients, seed: int, is_streamed: bool) -> Said:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in SCHEMAS.items()
    ]
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": tools,
        "tool_choice": "auto",
        "seed": seed,
        "temperature": 1,
        "max_tokens": MAX_TOKENS,
        "stream": is_streamed,
    }
    response = await clients.post("/v1/chat/completions", body)
    if not is_streamed:
        [choice] = response.json()["choices"]
        made = [call["function"] for call in choice["message"].get("tool_calls") or []]
        return said(
            choice["message"]["content"] or "",
            [(function["name"], function["arguments"]) for function in made],
            choice["finish_reason"],
        )
    content, calls, reason = "", list[list[str]](), ""
    for chunk in chunks_of(response):
        for choice in chunk["choices"]:
            content += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
            for call in choice["delta"].get("tool_calls") or []:
                if call["index"] == len(calls):
                    calls.append([call["function"]["name"], ""])
                calls[call["index"]][1] += call["function"].get("arguments") or ""
    return said(content, [(name, text) for name, text in calls], reason)


async def responses(clients: Clients, seed: int, is_streamed: bool) -> Said:
    tools = [
        {"type": "function", "name": name, "parameters": schema, "strict": False}
        for name, schema in SCHEMAS.items()
    ]
    body = {
        "input": "Hello",
        "tools": tools,
        "seed": seed,
        "temperature": 1,
        "max_output_tokens": MAX_TOKENS,
        "stream": is_streamed,
    }
    response = await clients.post("/v1/responses", body)
    found = responding.events_of(response)[-1]["response"] if is_streamed else response.json()
    output = found["output"]
    calls = [
        (item["name"], item["arguments"]) for item in output if item["type"] == "function_call"
    ]
    parts = [
        part["text"] for item in output if item["type"] == "message" for part in item["content"]
    ]
    is_cut = found["status"] == "incomplete"
    return Said("".join(parts), tuple(calls), is_cut, bool(calls) and not is_cut)


async def messages(clients: Clients, seed: int, is_streamed: bool) -> Said:
    tools = [{"name": name, "input_schema": schema} for name, schema in ANTHROPIC_SCHEMAS.items()]
    body = {
        "model": "tiny",
        "max_tokens": MAX_TOKENS,
        "messages": [{"role": "user", "content": f"Hello {seed}"}],
        "tools": tools,
        "temperature": 1,
        "stream": is_streamed,
    }
    response = await clients.post("/v1/messages", body)
    if not is_streamed:
        found = response.json()
        blocks = found["content"]
        calls = [
            (block["name"], json.dumps(block["input"])) for block in blocks if "input" in block
        ]
        content = "".join(block["text"] for block in blocks if block["type"] == "text")
        return said(content, calls, found["stop_reason"])
    content, named, reason = "", list[list[str]](), ""
    for event in anthropic.events_of(response):
        match event:
            case {"content_block": {"type": "tool_use", "name": name}}:
                named.append([name, ""])
            case {"delta": {"type": "input_json_delta", "partial_json": text}}:
                named[-1][1] += text
            case {"delta": {"type": "text_delta", "text": text}}:
                content += text
            case {"delta": {"stop_reason": str(stop)}}:
                reason = stop
    return said(content, [(name, text or "{}") for name, text in named], reason)


def said(content: str, calls: list[tuple[str, str]], reason: str) -> Said:
    is_cut = reason in ("length", "max_tokens")
    return Said(content, tuple(calls), is_cut, reason in ("tool_calls", "tool_use"))


ANTHROPIC_SCHEMAS = {name: {"type": "object", **schema} for name, schema in SCHEMAS.items()}
ASKS = {"chat": chat, "responses": responses, "messages": messages}


def check(answer: Said, dialect: str) -> int:
    """How many calls are whole. None is anything else, but for the last one of a cut answer."""
    whole = answer.calls
    if answer.is_cut and whole:
        whole = whole[:-1]
    for name, arguments in whole:
        jsonschema.validate(json.loads(arguments), {**SCHEMAS[name], "type": "object"})
    if not answer.is_cut:
        assert answer.has_called is bool(answer.calls)
        assert DIALECTS[dialect].marks[0] not in answer.content or dialect in NO_FIRST_MARK
    return len(whole)


NO_FIRST_MARK = {"harmony"}  # whose first mark opens no call


@pytest.mark.parametrize("dialect", DIALECTS_TRIED)
def test_calls_of_a_random_model_fit_their_tools(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = SimpleNamespace(randbits=Random(0).getrandbits)  # of those that have none
    monkeypatch.setattr(sampling_defaults, "secrets", seeds)
    n_chats = N_CHATS if dialect in FEW else N_CHATS_OF_OTHERS

    async def asks() -> dict[str, int]:
        counts = {}
        async with serving(dialect) as clients:
            for protocol, ask in ASKS.items():
                answers = {
                    is_streamed: await asyncio.gather(
                        *(ask(clients, seed, is_streamed) for seed in range(n_chats))
                    )
                    for is_streamed in (False, True)
                }
                found = [check(answer, dialect) for each in answers.values() for answer in each]
                counts[protocol] = sum(map(bool, found))
                if protocol != "messages":  # which has no seeds
                    assert answers[False] == answers[True]
        return counts

    counts = asyncio.run(asks())
    assert all(counts.values()), counts
