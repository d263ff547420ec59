"""llama-server's completions: makes generations of prompts, and events or a body of their text."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from deployments.contract.errors import RequestError
from deployments.contract.events import FinishReason
from deployments.contract.model_card import ModelCard
from deployments.ingress.error_bodies import llama_error_event
from deployments.ingress.generation.plan import Plan
from deployments.ingress.generation.request_context import ReadMedia, reads_none
from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.http.sse import data, encode, encode_text
from deployments.ingress.llamacpp.field_types import ping_interval_s
from deployments.ingress.llamacpp.timings import progress, timings
from deployments.llama.completion.generation_settings import generation_settings
from deployments.llama.completion.probabilities import completion_probabilities
from deployments.llama.completion.sampling import sampling_params, with_defaults
from deployments.llama.completion.schema import CompletionFields
from deployments.llama.completion.text import NO_RULES, CompletionText, LineRules
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.text.chat.prompt import Prompt
from deployments.text.grammar.grammar import from_gbnf, from_json_schema
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer

FieldsT = TypeVar("FieldsT", bound=CompletionFields)
Prompts = Callable[[FieldsT, ModelCard, TextTokenizer, PromptMedia], list[Prompt]]
Ends = Callable[[TextTokenizer], tuple[int, ...]]


def no_ends(tokenizer: TextTokenizer) -> tuple[int, ...]:
    return ()


class CompletionBuilder(ResponseBuilder[FieldsT], Generic[FieldsT]):
    """`prompts` makes the ids of a request's prompts. `ends` are tokens that end an answer, beside
    the model's EOS. /completion and /infill share the rest.
    """

    _fields: FieldsT
    _card: ModelCard
    _tokenizer: TextTokenizer
    _texts: list[CompletionText]
    _generations: list[Generation]
    _settings: dict[str, object]

    def __init__(
        self,
        prompts: Prompts[FieldsT],
        ends: Ends = no_ends,
        read_media: ReadMedia = reads_none,
    ) -> None:
        self._prompts = prompts
        self._ends = ends
        self._read_media = read_media
        self._media = NO_MEDIA
        self._prompt_texts: dict[tuple[int, ...], str] = {}

    async def recall(self, request: FieldsT, card: ModelCard) -> None:
        self._media = await self._read_media(request.sources, card)

    def prepare(
        self, request: FieldsT, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        self._fields = fields = with_defaults(request, card)
        self._card, self._tokenizer = card, tokenizer
        prompts = self._prompts(fields, card, tokenizer, self._media)
        ends = () if fields.ignore_eos else self._ends(tokenizer)
        constraint, param = grammar(fields), "grammar" if fields.grammar else "json_schema"
        planned = Plan(
            card=card,
            tokenizer=tokenizer,
            response_id=f"cmpl-{uuid.uuid4().hex}",
            prompts=[replace(each, grammar=constraint, grammar_param=param) for each in prompts],
            sampling=sampling_params(fields, card, tokenizer),
            prompt_param="prompt",
            options=replace(fields.plan_options, stop_token_ids=ends),
        )
        self._settings = generation_settings(fields, planned.sampling, card)
        planned_generations = planned.generations()
        rules = line_rules(fields)
        self._texts = [CompletionText(tokenizer, fields.stops, rules) for _ in planned_generations]
        self._generations = [
            replace(generation, text=text)
            for generation, text in zip(planned_generations, self._texts, strict=True)
        ]
        return self._generations

    def keep_alive_s(self, request: FieldsT, default: float) -> float | None:
        return ping_interval_s(request.sse_ping_interval, default)

    def format_stream_start(self) -> bytes:
        return b""

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        frames = b""
        if delta.prompt_tokens is not None:
            frames = self._progress(choice, delta, delta.prompt_tokens)
        if delta.text or delta.token_ids or delta.logprobs:
            frames += self._partial(choice, delta)
        if delta.finish_reason is not None:
            final = self._final(choice, replace(delta, text="", token_ids=(), logprobs=()))
            frames += data(encode(final))
        return frames

    def format_stream_end(self, usage: Usage) -> bytes:
        return b""

    def format_stream_error(self, error: RequestError) -> bytes:
        return llama_error_event(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        results = [self._final(index, choice) for index, choice in enumerate(choices)]
        return encode(results[0] if len(results) == 1 else results)

    def _partial(self, choice: int, delta: TextDelta) -> bytes:
        head = (
            b'data: {"index":%d,"content":%b,"tokens":[%b],"stop":false,"id_slot":%d,'
            b'"tokens_predicted":%d,"tokens_evaluated":%d'
        )
        parts = (
            choice,
            encode_text(delta.text),
            b",".join(b"%d" % token_id for token_id in delta.token_ids),
            self._fields.id_slot,
            delta.output_tokens,
            self._prompt_tokens(choice),
        )
        return head % parts + self._extras(choice, delta) + b"}\n\n"

    def _progress(self, choice: int, delta: TextDelta, processed: int) -> bytes:
        told = progress(self._texts[choice], delta, processed, self._prompt_tokens(choice))
        partial = self._partial(choice, TextDelta(cached_tokens=delta.cached_tokens))
        return partial.removesuffix(b"}\n\n") + b',"prompt_progress":' + encode(told) + b"}\n\n"

    def _extras(self, choice: int, delta: TextDelta) -> bytes:
        extras = b""
        if self._fields.timings_per_token:
            extras += b',"timings":' + encode(self._timings(choice, delta))
        if self._fields.alternatives:
            extras += b',"completion_probabilities":' + encode(self._probabilities(delta))
        return extras

    def _final(self, choice: int, delta: TextDelta) -> dict[str, object]:
        generation, prompt_tokens = self._generations[choice].request, self._prompt_tokens(choice)
        wants_tokens = self._fields.return_tokens
        result: dict[str, object] = {
            "index": choice,
            "content": delta.text,
            "tokens": list(delta.token_ids) if wants_tokens else [],
            "id_slot": self._fields.id_slot,
            "stop": True,
            "model": self._card.answers_as,
            "tokens_predicted": delta.output_tokens,
            "tokens_evaluated": prompt_tokens,
            "generation_settings": {**self._settings, "seed": generation.sampling.seed},
            "prompt": self._prompt_text(generation.prompt_ids),
            "has_new_line": self._texts[choice].has_new_line,
            "truncated": self._is_truncated(choice, delta),
            "stop_type": stop_type(delta),
            "stopping_word": delta.stop if isinstance(delta.stop, str) else "",
            "tokens_cached": prompt_tokens + max(delta.output_tokens - 1, 0),
            "timings": self._timings(choice, delta),
        }
        if delta.logprobs:
            result["completion_probabilities"] = self._probabilities(delta)
        return select_fields(self._fields.response_fields, result)

    def _prompt_text(self, ids: tuple[int, ...]) -> str:
        """Decoded once for all choices of a prompt."""
        if ids not in self._prompt_texts:
            self._prompt_texts[ids] = self._tokenizer.decode(ids, skip_special_tokens=False)
        return self._prompt_texts[ids]

    def _is_truncated(self, choice: int, delta: TextDelta) -> bool:
        """Whether the answer ended because the context was full."""
        tokens = self._prompt_tokens(choice) + delta.output_tokens
        ended = delta.finish_reason is FinishReason.LENGTH
        cut = not 0 <= self._fields.token_limit <= delta.output_tokens
        return ended and cut and tokens >= self._card.context_length

    def _prompt_tokens(self, choice: int) -> int:
        return len(self._generations[choice].request.prompt_ids)

    def _timings(self, choice: int, delta: TextDelta) -> dict[str, object]:
        return timings(self._texts[choice], delta, self._prompt_tokens(choice))

    def _probabilities(self, delta: TextDelta) -> list[dict[str, object]]:
        sampled = self._fields.post_sampling_probs
        return completion_probabilities(delta.logprobs, self._tokenizer, sampled=sampled)


def grammar(fields: CompletionFields) -> str:
    if fields.grammar:
        return from_gbnf(fields.grammar, "grammar")
    if fields.json_schema is None:
        return ""
    anything = {"type": "object"}  # as llama-server reads {}
    schema = anything if fields.json_schema == {} else fields.json_schema
    return from_json_schema(schema, "json_schema")


def line_rules(fields: CompletionFields) -> LineRules:
    rules = LineRules(
        indent=fields.n_indent,
        predict_s=_seconds(fields.t_max_predict_ms),
    )
    return NO_RULES if rules == NO_RULES else rules


def _seconds(milliseconds: int) -> float | None:
    return milliseconds / 1000 if milliseconds > 0 else None


def stop_type(delta: TextDelta) -> str:
    if delta.finish_reason is FinishReason.LENGTH:
        return "limit"
    return "word" if isinstance(delta.stop, str) else "eos"


def select_fields(paths: Sequence[str], result: dict[str, object]) -> dict[str, object]:
    """The fields at the paths, each under its full path; without paths all fields.

    As llama-server documents, a path that does not exist is left out.
    """
    if not paths:
        return result
    found = {path: _lookup(path.split("/"), result) for path in paths}
    return {path: values[0] for path, values in found.items() if values}


def _lookup(names: Sequence[str], value: object) -> list[object]:
    """The value in a list, or an empty list."""
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return []
        value = value[name]
    return [value]
