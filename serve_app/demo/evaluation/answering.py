"""Replies to held-out cases: from the engine in this process, or from a server at a URL."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.engine import InferenceEngine
from deployments.text.chat.conversation import Conversation, Thinking, prepare_prompt
from deployments.text.chat.prompt import ChatPrompt
from deployments.text.reply import Reply, ReplyCall, fold_reply
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool
from serve_app.demo.evaluation.scoring import AnsweredCase
from serve_app.demo.training.corpus import Case

MAX_TOKENS = 300
AT_ONCE = 16  # requests to a server


def in_process(path: str, cases: Sequence[Case]) -> Iterator[AnsweredCase]:
    """Yields the replies in the order in which they are done."""
    with InferenceEngine(path) as engine:
        tokenizer = TextTokenizer(engine.card)
        prompts = [_prompt(case, engine.card, tokenizer) for case in cases]
        produced: list[list[int]] = [[] for _ in cases]
        requests = (_request(at, prompt) for at, prompt in enumerate(prompts))
        for at, event in engine.core.run(requests):
            if event.error is not None:
                raise RuntimeError(event.error.message)
            produced[at] += event.token_ids
            if event.finish_reason is not None:
                yield AnsweredCase(cases[at], _read(prompts[at], tokenizer.decode(produced[at])))


def _request(at: int, prompt: ChatPrompt) -> GenerationRequest:
    return GenerationRequest(
        request_id=str(at),
        prompt_ids=tuple(prompt.ids),
        sampling=SamplingParams(temperature=0.0),
        grammar=prompt.grammar,
        max_tokens=MAX_TOKENS,
    )


def _prompt(case: Case, card: ModelCard, tokenizer: TextTokenizer) -> ChatPrompt:
    conversation = Conversation(
        messages=case.messages(),
        tools=tuple(_tool(each, case.strict) for each in case.described_tools() or ()),
        thinking=Thinking(enabled=True if case.thinking else None),
    )
    return prepare_prompt(conversation, card, tokenizer)


def _tool(described: dict[str, Any], strict: bool) -> Tool:
    function = described["function"]
    return Tool(function["name"], function["description"], function["parameters"], strict)


def _read(prompt: ChatPrompt, text: str) -> Reply:
    parser = prompt.parser()
    return fold_reply([*parser.push(text), *parser.finish()])


def over_http(url: str, model: str, key: str, cases: Sequence[Case]) -> Iterator[AnsweredCase]:
    # Only who asks a server needs the SDK.
    from openai import OpenAI

    with (
        OpenAI(base_url=f"{url.rstrip('/')}/v1", api_key=key) as client,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        replies = pool.map(lambda case: _asked(client, model, case), cases)
        for case, reply in zip(cases, replies, strict=True):
            yield AnsweredCase(case, reply)


def _asked(client: Any, model: str, case: Case) -> Reply:
    more: dict[str, object] = {}
    if case.tools:
        more["tools"] = [_held(each, case.strict) for each in case.described_tools() or ()]
    if case.thinking:
        more["extra_body"] = {"chat_template_kwargs": {"enable_thinking": True}}
    answer = client.chat.completions.create(
        model=model,
        messages=[_sent(message) for message in case.messages()],
        temperature=0,
        max_tokens=MAX_TOKENS,
        **more,
    )
    message = answer.choices[0].message
    calls = [
        ReplyCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
    ]
    thought = getattr(message, "reasoning_content", None) or ""
    return Reply(message.content or "", thought, tuple(calls))


def _held(described: dict[str, Any], strict: bool) -> dict[str, object]:
    return {**described, "function": {**described["function"], "strict": strict}}


def _sent(message: dict[str, Any]) -> dict[str, object]:
    """Returns a message as OpenAI has it: calls have ids, and arguments are text."""
    if message["role"] == "tool":
        return {**message, "tool_call_id": "call_0"}
    calls = [
        {
            "id": f"call_{at}",
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
            },
        }
        for at, call in enumerate(message.get("tool_calls", ()))
    ]
    return {**message, "tool_calls": calls} if calls else message
