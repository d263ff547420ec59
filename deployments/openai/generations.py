"""The shared fields as generations: the model's own defaults fill what a request leaves open."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from deployments.ingress.builder import Generation
from deployments.ingress.errors import refused
from deployments.openai.fields import GenerationFields
from deployments.text.stream import TextStream
from deployments.text.tokenizer import TextTokenizer
from deployments.wire import (
    ErrorKind,
    GenerationRequest,
    ModelCard,
    Refused,
    RequestError,
    SamplingParams,
)

SEEDS = 1 << 63

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Plan:
    """A request's fields beside the model that is to serve it."""

    fields: GenerationFields
    card: ModelCard
    tokenizer: TextTokenizer
    response_id: str
    sampling: SamplingParams
    prompt_field: str

    def generations(self, prompts: Sequence[Sequence[int]]) -> list[Generation]:
        """`n` for each prompt, next to each other. Choice i of a prompt draws with seed + i."""
        check_ids(self.fields.stop_token_ids or (), self.card, "stop_token_ids")
        choices = self.fields.n or 1
        return [
            self._generation(tuple(ids), choice, f"{self.response_id}-{place * choices + choice}")
            for place, ids in enumerate(prompts)
            for choice in range(choices)
        ]

    def _generation(self, ids: tuple[int, ...], choice: int, request_id: str) -> Generation:
        fields, room = self.fields, self._room(len(ids))
        request = GenerationRequest(
            request_id=request_id,
            prompt_ids=ids,
            sampling=seeded(self.sampling, choice),
            max_tokens=room,
            min_tokens=min(fields.min_tokens or 0, room),
            stop_token_ids=tuple(fields.stop_token_ids or ()),
            ignore_eos=bool(fields.ignore_eos),
            cache_salt=fields.cache_salt or "",
        )
        return Generation(request=request, text=self._text(), counts_prompt=choice == 0)

    def _room(self, prompt_tokens: int) -> int:
        """Tokens that may be generated: the request's limit, cut to what the context leaves."""
        context = self.card.context_length
        if prompt_tokens >= context:
            message = (
                f"This model's maximum context length is {context} tokens, and the prompt has "
                f"{prompt_tokens} tokens, which leaves no room for an answer"
            )
            raise Refused(RequestError(ErrorKind.CONTEXT_LENGTH, message, self.prompt_field))
        return min(given(self.fields.token_limit, context), context - prompt_tokens)

    def _text(self) -> TextStream:
        return TextStream(
            self.tokenizer,
            stops=self.fields.stops,
            include_stop=bool(self.fields.include_stop_str_in_output),
            skip_special_tokens=self.fields.skip_special_tokens is not False,
            min_tokens=self.fields.min_tokens or 0,
        )


def sampling_params(
    fields: GenerationFields, card: ModelCard, logprobs: int | None
) -> SamplingParams:
    default = card.sampling
    top_k = given(fields.top_k, default.top_k)
    return SamplingParams(
        temperature=given(fields.temperature, default.temperature),
        top_k=top_k if 0 < top_k < card.vocab_size else 0,
        top_p=given(fields.top_p, default.top_p),
        min_p=given(fields.min_p, default.min_p),
        repetition_penalty=given(fields.repetition_penalty, default.repetition_penalty),
        presence_penalty=given(fields.presence_penalty, default.presence_penalty),
        frequency_penalty=given(fields.frequency_penalty, default.frequency_penalty),
        logit_bias=given(biases(fields.logit_bias, card), default.logit_bias),
        seed=secrets.randbits(63) if fields.seed is None else fields.seed,
        logprobs=logprobs,
    )


def given(value: Value | None, default: Value) -> Value:
    return default if value is None else value


def seeded(sampling: SamplingParams, choice: int) -> SamplingParams:
    return replace(sampling, seed=(sampling.seed + choice) % SEEDS)


def biases(
    logit_bias: dict[str, float] | None, card: ModelCard
) -> tuple[tuple[int, float], ...] | None:
    if logit_bias is None:
        return None
    for name in logit_bias:
        if not (name.isascii() and name.isdecimal() and len(name) < 10):
            raise refused(f"`logit_bias` has the key {name[:20]!r}, not a token id", "logit_bias")
    found = {int(name): bias for name, bias in logit_bias.items()}
    check_ids(tuple(found), card, "logit_bias")
    return tuple(found.items())


def check_ids(ids: Sequence[int], card: ModelCard, param: str) -> None:
    if ids and max(ids) >= card.vocab_size:
        message = f"`{param}` has {max(ids)}, but the vocabulary has {card.vocab_size} tokens"
        raise refused(message, param)
