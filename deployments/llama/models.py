"""GET /models: the models in two shapes at once, Ollama's and OpenAI's."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.ingress.handler import Engine
from deployments.openai.models import OWNER
from deployments.wire import ModelCard


def model_routes(engine: Engine) -> list[Route]:
    async def list_models(request: Request) -> Response:
        cards = [await engine.card(name) for name, _ in await engine.models()]
        return JSONResponse(
            {
                "models": [_ollama(card) for card in cards],
                "object": "list",
                "data": [_openai(card) for card in cards],
            }
        )

    return [Route("/models", list_models, methods=["GET"])]


def _ollama(card: ModelCard) -> object:
    details = {
        "parent_model": "",
        "format": "safetensors",
        "family": "",
        "families": [""],
        "parameter_size": "",
        "quantization_level": "",
    }
    return {
        "name": card.name,
        "model": card.name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": details,
    }


def _openai(card: ModelCard) -> object:
    return {
        "id": card.name,
        "aliases": [card.name],
        "tags": [],
        "object": "model",
        "created": card.created,
        "owned_by": OWNER,
        "meta": {
            "n_vocab": card.vocab_size,
            "n_ctx": card.context_length,
            "n_ctx_train": card.context_length,
        },
    }
