"""The response object: the request's settings, the status and the output."""

import time
from collections.abc import Sequence

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.requests import SamplingParams
from deployments.ingress.generation.response_builder import Usage
from deployments.openai.responses.items import Json
from deployments.openai.responses.offered_tools import OfferedTools
from deployments.openai.responses.schema import ResponsesRequest

# OpenAI's codes for failed responses; all other errors are `server_error`.
CODES = {
    ErrorKind.CONTEXT_LENGTH: "invalid_prompt",
    ErrorKind.INVALID_REQUEST: "invalid_prompt",
    ErrorKind.OVERLOADED: "rate_limit_exceeded",
}


class ResponseObject:
    def __init__(
        self,
        response_id: str,
        model: str,
        request: ResponsesRequest,
        offered: OfferedTools,
        sampling: SamplingParams,
    ) -> None:
        self.id = response_id
        self._head: Json = {
            "id": response_id,
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
        }
        self._echo = {
            **_echo(request),
            "tools": offered.listed(),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }

    def begun(self) -> Json:
        return self._body("in_progress", [], None)

    def ended(self, output: Sequence[Json], usage: Usage, *, is_cut: bool, is_stored: bool) -> Json:
        counts = usage_object(usage)
        self._echo["store"] = is_stored
        if is_cut:
            body = self._body("incomplete", output, counts)
            return {**body, "incomplete_details": {"reason": "max_output_tokens"}}
        return {**self._body("completed", output, counts), "completed_at": int(time.time())}

    def failed(self, output: Sequence[Json], error: RequestError) -> Json:
        code = CODES.get(error.kind, "server_error")
        fields = {"code": code, "message": error.message, "param": error.param}
        return {**self._body("failed", output, None), "error": fields}

    def _body(self, status: str, output: Sequence[Json], usage: Json | None) -> Json:
        return {
            **self._head,
            "status": status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": output,
            **({} if usage is None else {"usage": usage}),
            **self._echo,
        }


def _echo(request: ResponsesRequest) -> Json:
    # The SDKs' types have these fields not as null.
    in_conversation = request.conversation_id
    names = {
        "conversation": in_conversation and {"id": in_conversation},
        "prompt_cache_key": request.prompt_cache_key,
        "safety_identifier": request.safety_identifier,
        "user": request.user,
    }
    return {
        **{key: name for key, name in names.items() if name is not None},
        "background": False,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "reasoning": _reasoning(request),
        "service_tier": "default",
        "store": request.store is not False,
        "text": _text(request),
        "tool_choice": _tool_choice(request),
        "top_logprobs": request.top_logprobs or 0,
        "truncation": request.truncation or "disabled",
    }


def _reasoning(request: ResponsesRequest) -> Json:
    reasoning = request.reasoning
    if reasoning is None:
        return {"effort": None, "summary": None}
    context: Json = {} if reasoning.context in (None, "auto") else {"context": reasoning.context}
    return {"effort": reasoning.effort, "summary": reasoning.summary, **context}


def _text(request: ResponsesRequest) -> Json:
    form = request.format.model_dump(by_alias=True, exclude_none=True)
    verbosity = request.text.verbosity if request.text is not None else None
    return {"format": form, "verbosity": verbosity or "medium"}


def _tool_choice(request: ResponsesRequest) -> object:
    if request.tool_choice is None or isinstance(request.tool_choice, str):
        return request.tool_choice or "auto"
    return request.tool_choice.model_dump(exclude_none=True)


def usage_object(usage: Usage) -> Json:
    """Writing to the cache is free and not counted."""
    cached = {"cached_tokens": usage.cached_tokens, **usage.cached_details}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {**cached, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.thought_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
