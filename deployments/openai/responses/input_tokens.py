"""Counts the tokens of a Responses request's prompt."""

from functools import partial

from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.routes.service import Answering, UnaryOperation
from deployments.openai.input_tokens import count_prompt_tokens
from deployments.openai.responses.builder import ResponsesBuilder
from deployments.openai.responses.encryption import ThoughtCipher
from deployments.openai.responses.schema import ResponsesRequest, parse_response_request
from deployments.openai.responses.store import ResponseStore


def responses_input_tokens(
    store: ResponseStore, cipher: ThoughtCipher
) -> UnaryOperation[ResponsesRequest]:
    async def recalled(
        context: RequestContext, asked: ResponsesRequest, card: ModelCard
    ) -> Answering[ResponsesRequest]:
        builder = ResponsesBuilder(store, cipher, context)
        await builder.recall(asked, card)
        return partial(count_prompt_tokens, builder)

    return UnaryOperation(
        name="responses_input_tokens",
        path="/v1/responses/input_tokens",
        body=ResponsesRequest,
        parse=parse_response_request,
        answer=recalled,
    )
