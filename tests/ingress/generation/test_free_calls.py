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
from tests.effort import tries
from tests.engine.drive import roomy
from tests.ingress.engines import ScriptedEngine
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.every import CALLERS
from tests.ingress.protocols.messages import MESSAGES
from tests.ingress.protocols.protocol import Caller, Said
from tests.ingress.protocols.responses import RESPONSES
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
        client = self.anthropic if path == MESSAGES.path else self.openai
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


async def ask(protocol: Caller, clients: Clients, seed: int, is_streamed: bool) -> Said:
    own: dict[Caller, dict[str, Any]] = {
        CHATS: {"tool_choice": "auto", "seed": seed},
        RESPONSES: {"seed": seed},
        MESSAGES: {"messages": [{"role": "user", "content": f"Hello {seed}"}]},
    }
    body = {
        **protocol.hello,
        "tools": [protocol.tool(name, schema, strict=False) for name, schema in OBJECTS.items()],
        "temperature": 1,
        **protocol.fields(limit=MAX_TOKENS),
        **own[protocol],
    }
    streaming = {**protocol.tells_all, "stream": True} if is_streamed else {}
    response = await clients.post(protocol.path, {**body, **streaming})
    if is_streamed:
        told = protocol.fold(protocol.events_of(response))
    else:
        told = protocol.told(response.json())
    return replace(protocol.said(told), cached_tokens=0)


OBJECTS = {name: {"type": "object", **schema} for name, schema in SCHEMAS.items()}


def check(answer: Said, dialect: str) -> int:
    """How many calls are whole. None is anything else, but for the last one of a cut answer."""
    whole = answer.calls
    if answer.ending == "limit" and whole:
        whole = whole[:-1]
    for name, arguments in whole:
        jsonschema.validate(json.loads(arguments), OBJECTS[name])
    if answer.ending != "limit":
        assert (answer.ending == "call") is bool(answer.calls)
        assert DIALECTS[dialect].marks[0] not in answer.text or dialect in NO_FIRST_MARK
    return len(whole)


NO_FIRST_MARK = {"harmony"}  # whose first mark opens no call


@pytest.mark.parametrize("dialect", DIALECTS_TRIED)
async def test_calls_of_a_random_model_fit_their_tools(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = SimpleNamespace(randbits=Random(0).getrandbits)  # of those that have none
    monkeypatch.setattr(sampling_defaults, "secrets", seeds)
    n_chats = N_CHATS if dialect in FEW else N_CHATS_OF_OTHERS
    counts = {}
    async with serving(dialect) as clients:
        for protocol in CALLERS:
            answers = {
                is_streamed: await asyncio.gather(
                    *(ask(protocol, clients, seed, is_streamed) for seed in range(n_chats))
                )
                for is_streamed in (False, True)
            }
            found = [check(answer, dialect) for each in answers.values() for answer in each]
            counts[protocol.name] = sum(map(bool, found))
            if protocol is not MESSAGES:  # which has no seeds
                assert answers[False] == answers[True]
    assert all(counts.values()), counts
