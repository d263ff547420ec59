"""Legacy completions: continues prompts as they are, and formats OpenAI's chunks or body."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from deployments.contract.errors import RequestError
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import Plan, PlanOptions
from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.http.errors import NO_HEADERS
from deployments.ingress.http.sse import DONE, encode, encode_text
from deployments.openai.choices.chunk_encoder import ChunkEncoder, error_events, trailing_fields
from deployments.openai.choices.logprobs import Logprobs, TokenAtOffset, prompt_tokens_at_offsets
from deployments.openai.choices.nvext_annotations import NvextOutput
from deployments.openai.choices.prompt_scores import PromptScores, reserve_nothing
from deployments.openai.choices.vllm_choice_fields import VllmChoiceFields
from deployments.openai.completions.prompt import completion_prompts
from deployments.openai.completions.schema import CompletionRequest
from deployments.openai.fields.sampling import sampling_params
from deployments.openai.request_headers import read_headers
from deployments.text.chat.prompt import Prompt
from deployments.text.infill import infill_ends
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer

KIND = "text_completion"
NULL = b"null"
NO_TEXT = b'""'


class CompletionsResponseBuilder(ResponseBuilder[CompletionRequest]):
    _request: CompletionRequest
    _prompts: list[Prompt]  # one a choice
    _tokenizer: TextTokenizer
    _encoder: ChunkEncoder
    _logprobs: Logprobs
    _fields: VllmChoiceFields
    _nvext: NvextOutput
    _unopened: set[int]  # choices whose prompt or prompt ids are not yet sent

    def __init__(
        self,
        headers: Mapping[str, str] = NO_HEADERS,
        reserve: Callable[[int], None] = reserve_nothing,
    ) -> None:
        self._headers = read_headers(headers)
        self._scores = PromptScores(reserve)

    def keep_alive_s(self, request: CompletionRequest, default: float) -> float | None:
        return request.ping_interval_s(default)

    def prepare(
        self, request: CompletionRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        self._request, self._tokenizer = request, tokenizer
        prompts = completion_prompts(request, card, tokenizer)
        self._prompts = [prompt for prompt in prompts for _ in range(request.generated)]
        response_id = f"cmpl-{uuid.uuid4().hex}"
        self._format_as(response_id, card, [(prompt.text, prompt.ids) for prompt in prompts])
        alternatives = 0 if request.chooses and request.logprobs is None else request.logprobs
        planned = Plan(
            card=card,
            tokenizer=tokenizer,
            response_id=response_id,
            prompts=prompts,
            sampling=sampling_params(request, card, tokenizer, alternatives),
            prompt_param="prompt",
            options=self._headers.salted(self._options(tokenizer)),
        )
        return [self._with_prompt_logprobs(generation) for generation in planned.generations()]

    def _options(self, tokenizer: TextTokenizer) -> PlanOptions:
        options = self._request.plan_options
        if not self._request.suffix or options.ignore_eos:
            return options
        ends = options.stop_token_ids + infill_ends(tokenizer)
        return replace(options, stop_token_ids=ends)

    def check_size(self, generations: Sequence[Generation]) -> None:
        self._scores.reserve(generations)

    def _format_as(
        self, response_id: str, card: ModelCard, prompts: Sequence[tuple[str, Sequence[int]]]
    ) -> None:
        request = self._request
        self._encoder = ChunkEncoder(
            request, card.answers_as, response_id, kind=KIND, chunk_kind=KIND
        )
        as_ids = bool(request.return_tokens_as_token_ids)
        self._logprobs = Logprobs(self._tokenizer, as_ids=as_ids)
        self._fields = VllmChoiceFields(request, card)
        opens = request.echo or request.return_token_ids
        self._unopened = set(range(len(self._prompts))) if opens else set()
        empty_chunk = partial(self._encoder.chunk, _choice(0, NO_TEXT, NULL, NULL))
        choices = len(prompts) * (request.n or 1)
        self._nvext = NvextOutput(request.nvext, prompts, choices, self._headers, empty_chunk)

    def _with_prompt_logprobs(self, generation: Generation) -> Generation:
        """Every choice requests its prompt's logprobs: a stream can't wait for another choice."""
        asked = [] if self._request.prompt_logprobs is None else [self._request.prompt_logprobs]
        if self._request.echoes_logprobs:
            asked.append(self._request.logprobs or 0)
        request = replace(generation.request, prompt_logprobs=max(asked, default=None))
        return replace(generation, request=request)

    def format_stream_start(self) -> bytes:
        return self._nvext.begin()

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        self._nvext.add_streamed(delta)
        chunks = self._opening(choice, delta) if choice in self._unopened else b""
        fields = trailing_fields(self._fields.produced(delta))
        if delta.text or delta.logprobs or (fields and delta.token_ids):
            logprobs = self._legacy(self._output_tokens(choice, delta))
            text = _choice(choice, encode_text(delta.text), logprobs, NULL, fields)
            chunks += self._encoder.chunk(text, usage)
        if delta.finish_reason is not None:
            reason = encode_text(delta.finish_reason)
            end = _choice(choice, NO_TEXT, NULL, reason, trailing_fields(self._fields.ended(delta)))
            chunks += self._encoder.chunk(end, usage, trailing_fields(self._nvext.answer(usage)))
        return chunks

    def _opening(self, choice: int, delta: TextDelta) -> bytes:
        self._unopened.remove(choice)
        echo = encode_text(self._echo(choice))
        logprobs = self._legacy(self._prompt_tokens(choice, delta))
        opening = _choice(choice, echo, logprobs, NULL, trailing_fields(self._prompt_ids(choice)))
        return self._encoder.chunk(opening)

    def format_stream_end(self, usage: Usage) -> bytes:
        return self._encoder.end(usage) + self._nvext.end(usage) + DONE

    def format_stream_error(self, error: RequestError) -> bytes:
        return error_events(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        formatted = [
            self._whole(index, made, choices[made])
            for index, made in enumerate(self._chosen(choices))
        ]
        return self._encoder.body(formatted, usage, self._nvext.answer(usage))

    def _chosen(self, choices: Sequence[TextDelta]) -> Sequence[int]:
        """The indices of the choices that are the answer, of each prompt the best one first."""
        if not self._request.chooses:
            return range(len(choices))
        made, n = self._request.generated, self._request.n or 1
        prompts = (range(start, start + made) for start in range(0, len(choices), made))
        best = (
            sorted(group, key=lambda index: -_mean_logprob(choices[index]))[:n] for group in prompts
        )
        return [index for group in best for index in group]

    def _whole(self, index: int, made: int, choice: TextDelta) -> object:
        """`made` is its index among all that were made."""
        self._nvext.add(choice)
        tokens = [*self._prompt_tokens(made, choice), *self._output_tokens(made, choice)]
        has_logprobs = self._request.logprobs is not None
        fields = {
            "index": index,
            "text": self._echo(made) + choice.text,
            "logprobs": self._logprobs.legacy(tokens) if has_logprobs else None,
            "finish_reason": choice.finish_reason,
            **self._prompt_ids(made),
            **self._fields.produced(choice),
            **self._fields.ended(choice),
        }
        if self._request.prompt_logprobs is not None:
            logprobs = choice.prompt_logprobs or ()
            fields["prompt_logprobs"] = self._logprobs.prompt(
                logprobs, self._request.prompt_logprobs
            )
        return fields

    def _legacy(self, tokens: Sequence[TokenAtOffset]) -> bytes:
        return encode(self._logprobs.legacy(tokens)) if tokens else NULL

    def _output_tokens(self, choice: int, delta: TextDelta) -> list[TokenAtOffset]:
        start = len(self._echo(choice))
        return [
            (entry.token.token_id, start + entry.offset, entry.token) for entry in delta.logprobs
        ]

    def _prompt_tokens(self, choice: int, delta: TextDelta) -> list[TokenAtOffset]:
        if not self._request.echoes_logprobs:
            return []
        assert delta.prompt_logprobs is not None
        ids, alternatives = self._prompts[choice].ids, self._request.logprobs or 0
        return prompt_tokens_at_offsets(self._tokenizer, ids, delta.prompt_logprobs, alternatives)

    def _echo(self, choice: int) -> str:
        return self._prompts[choice].text if self._request.echo else ""

    def _prompt_ids(self, choice: int) -> dict[str, object]:
        if not self._request.return_token_ids:
            return {}
        return {"prompt_token_ids": list(self._prompts[choice].ids)}


def _mean_logprob(choice: TextDelta) -> float:
    logprobs = [entry.token.logprob for entry in choice.logprobs]
    return sum(logprobs) / len(logprobs) if logprobs else 0.0


def _choice(
    index: int, text: bytes, logprobs: bytes, finish_reason: bytes, fields: bytes = b""
) -> bytes:
    parts = (index, text, logprobs, finish_reason, fields)
    return b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b%b}' % parts
