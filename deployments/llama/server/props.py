"""GET /props: the properties of the server and of a model's chat template."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.media_rules import MediaKind
from deployments.contract.model_card import ModelCard, media_kinds
from deployments.contract.model_status import DEMO_SOURCE, ModelState, ModelStatus
from deployments.ingress.fingerprint import system_fingerprint
from deployments.ingress.fleet.cluster import Cluster, inspect_model
from deployments.ingress.generation.abilities import modalities_of, tasks_of
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.pooling.texts import max_input_tokens
from deployments.ingress.routes.models import weights_object
from deployments.llama.completion.generation_settings import default_settings
from deployments.llama.completion.sampling import RANDOM_SEEDS, sampling_params, with_defaults
from deployments.llama.completion.schema import MEDIA_MARKER, CompletionFields
from deployments.llama.server.replicas import replicas_of
from deployments.text.chat.messages import with_template_ids
from deployments.text.chat.template_calls import describes_tools
from deployments.text.chat.templates import knows_tools, variables
from deployments.text.chat.tool_prompting import build_tool_prompt
from deployments.text.dialects.registry import DIALECTS, dialect_of
from deployments.text.tokens.tokenizer import TextTokenizer, TokenizerCache

# llama-server's properties of a server with several models.
ROUTER = {
    "role": "router",
    "model_alias": "manta",
    "model_path": "none",
    "default_generation_settings": {"params": None, "n_ctx": 0},
    "build_info": system_fingerprint(),
    "cors_proxy_enabled": False,
}
# Messages with which templates are tested.
USER: Mapping[str, object] = {"role": "user", "content": "U-u"}
PARTS: Mapping[str, object] = {
    "role": "user",
    "content": [{"type": "text", "text": "U-u"}],
}
TOOL: Mapping[str, object] = {
    "type": "function",
    "function": {"name": "t_0", "description": "D-d", "parameters": {"type": "object"}},
}
Messages = Sequence[Mapping[str, object]]


def props_routes(cluster: Cluster, tokenizers: TokenizerCache) -> list[Route]:
    async def props(request: Request) -> Response:
        name = request.query_params.get("model")
        named = [status for status in await cluster.statuses() if status.source != DEMO_SOURCE]
        if name is None and len(named) > 1:
            return JSONResponse(ROUTER)
        model, card = await inspect_model(cluster, name)
        replicas = await replicas_of(cluster, model)
        slots = replicas.slots_each * len(replicas.stats)
        told = await asyncio.to_thread(_props, card, tokenizers, slots)
        of_files = _of_files(model, card)
        return JSONResponse({**told, **of_files, "is_sleeping": model.state is ModelState.SLEEPING})

    async def change_props(request: Request) -> Response:
        message = "This server does not support changing global properties"
        raise Refused.of_kind(ErrorKind.NOT_SUPPORTED, message)

    return [
        DocumentedRoute(
            "/props", props, methods=["GET"], name="props", tag="Server", query=["model"]
        ),
        Route("/props", change_props, methods=["POST"], include_in_schema=False),
    ]


def _props(card: ModelCard, tokenizers: TokenizerCache, total_slots: int) -> Mapping[str, object]:
    tokenizer, special = tokenizers.get(card), dict(card.special_tokens)
    modalities = modalities_of(card)
    tooled = card.tool_template or card.chat_template or ""
    return {
        "default_generation_settings": {
            "params": _default_params(card, tokenizer),
            "n_ctx": card.context_length,
        },
        "total_slots": total_slots,
        "model_alias": card.name,
        "modalities": {
            "vision": MediaKind.IMAGE in modalities,
            "video": False,
            "audio": MediaKind.AUDIO in modalities,
        },
        **({"media_marker": MEDIA_MARKER} if media_kinds(card) else {}),
        **_answers(card),
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "chat_template": card.chat_template or "",
        **({"chat_template_tool_use": card.tool_template} if card.tool_template else {}),
        "chat_template_caps": template_caps(card, tokenizer),
        "tools_described_by": "template" if describes_tools(tooled, card, tokenizer) else "server",
        "bos_token": special.get("bos_token", ""),
        "eos_token": special.get("eos_token", ""),
        "build_info": system_fingerprint(),
        "cors_proxy_enabled": False,
    }


def _of_files(model: ModelStatus, card: ModelCard) -> Mapping[str, object]:
    """Returns where the model is loaded from, and the form of its weights."""
    weights = card.weights or model.weights
    form = {} if weights is None else {"weights": weights_object(weights)}
    return {"model_path": model.path or card.name, **form}


def _answers(card: ModelCard) -> Mapping[str, object]:
    """Returns the model's tasks, and what of them a request may name."""
    kinds = card.answers
    return {
        "tasks": tasks_of(card),
        "pooling": kinds.pooling,
        "embedding_size": kinds.embedding_size,
        "max_input_tokens": max_input_tokens(card),
        "prompts": dict(kinds.prompts),
        "labels": list(kinds.labels),
    }


def _default_params(card: ModelCard, tokenizer: TextTokenizer) -> object:
    fields = with_defaults(CompletionFields(), card)
    settings = default_settings(fields, sampling_params(fields, card, tokenizer), card)
    return {**settings, "seed": max(RANDOM_SEEDS)}


def template_caps(card: ModelCard, tokenizer: TextTokenizer) -> dict[str, bool]:
    """Renders each kind of message, and checks whether its content is in the prompt."""
    template = card.chat_template or ""
    tooled = card.tool_template or template
    dialect = DIALECTS[card.dialect] if card.dialect else dialect_of(tooled)
    shows = partial(_shows, tokenizer.render_chat)
    tells = partial(_shows, partial(tokenizer.render_chat, tools=[TOOL], template=tooled))
    calls = [_call("f_1", "A-a"), _call("g_2", "B-b")]
    called = with_template_ids([USER, _assistant(tool_calls=calls[:1])], dialect)
    both = with_template_ids([USER, _assistant(tool_calls=calls)], dialect)
    thought = [USER, {**called[1], "reasoning_content": "T-t"}]
    one = tells(called, "f_1", "A-a")
    return {
        "supports_object_arguments": one,
        "supports_parallel_tool_calls": tells(both, "f_1", "g_2"),
        "supports_preserve_reasoning": tells(thought, "T-t"),
        "supports_reasoning_effort": "reasoning_effort" in variables(template),
        "supports_string_content": shows([USER], "U-u"),
        "supports_system_role": shows([{"role": "system", "content": "S-s"}, USER], "S-s"),
        "supports_thinking": build_tool_prompt([USER], (), False, card, tokenizer).thinks,
        "supports_tool_calls": one,
        "supports_tools": knows_tools(tooled),
        # Others print the list itself.
        "supports_typed_content": shows([PARTS], "U-u") and not shows([PARTS], "'text'"),
    }


def _shows(render: Callable[[Messages], str], messages: Messages, *texts: str) -> bool:
    try:
        prompt = render(messages)
    except Refused:
        return False
    return all(text in prompt for text in texts)


def _assistant(**fields: object) -> Mapping[str, object]:
    return {"role": "assistant", "content": "", **fields}


def _call(name: str, argument: str) -> object:
    function = {"name": name, "arguments": {"x": argument}}
    return {"id": name, "type": "function", "function": function}
