"""Scripts for engines that score prompts, and models that know marks of their own."""

from collections.abc import AsyncIterator
from dataclasses import replace

from deployments.contract.events import FinishReason, TokenEvent, TokenLogprob
from deployments.contract.requests import GenerationRequest
from tests.ingress.engines import END, Script


def scoring(script: Script) -> Script:
    """The script, with the prompt's logprobs in its first event; of no tokens a single event."""

    async def scored(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        first = _scores(request)
        if request.max_tokens == 0:
            yield TokenEvent(prompt_logprobs=first, finish_reason=FinishReason.LENGTH)
            return
        async for event in script(request):
            yield replace(event, prompt_logprobs=first)
            first = None

    return scored


def telling(script: Script) -> Script:
    """The script, after events on its prompt for those who want them: 4 tokens of it are cached."""

    async def told(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        total = len(request.prompt_ids)
        for computed in (4, total // 2, total) if request.tells_progress else ():
            yield TokenEvent(prompt_tokens=computed, cached_tokens=4)
        async for event in script(request):
            yield event

    return told


def _scores(request: GenerationRequest) -> tuple[TokenLogprob | None, ...] | None:
    """Each token is as likely as its id says; END is the likeliest of all."""
    alternatives = request.prompt_logprobs
    if alternatives is None:
        return None
    top = ((END, -0.25), (65, -0.5), (66, float("-inf")))[:alternatives]
    return (
        None,
        *(TokenLogprob(token_id, -float(token_id), top) for token_id in request.prompt_ids[1:]),
    )
