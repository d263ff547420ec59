"""Counts the tokens of a Responses request's prompt."""

from deployments.ingress.routes.service import Answering, TokenizerOperation
from deployments.openai.input_tokens import count_prompt_tokens
from deployments.openai.responses.builder import ResponsesBuilder
from deployments.openai.responses.encryption import ThoughtCipher
from deployments.openai.responses.schema import ResponsesRequest, parse_response_request
from deployments.openai.responses.store import ResponseStore
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import ModelCard


def responses_input_tokens(
    store: ResponseStore, cipher: ThoughtCipher
) -> TokenizerOperation[ResponsesRequest]:
    def answering(owner: str) -> Answering[ResponsesRequest]:
        def answer(request: ResponsesRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
            builder = ResponsesBuilder(store.of(owner), cipher.of(owner))
            return count_prompt_tokens(builder, request, card, tokenizer)

        return answer

    return TokenizerOperation(
        name="responses_input_tokens",
        path="/v1/responses/input_tokens",
        body=ResponsesRequest,
        parse=parse_response_request,
        answer=answering,
    )
