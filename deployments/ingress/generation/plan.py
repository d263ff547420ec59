"""What a protocol's fields come to: generations for a model, with its limits kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from deployments.ingress.generation.response_builder import Generation
from deployments.ingress.http.errors import refused
from deployments.text.dialects.parsing.pieces import ReplyParser
from deployments.text.stream import TextStream
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import (
    ErrorKind,
    GenerationRequest,
    ModelCard,
    Refused,
    RequestError,
    SamplingParams,
    ThinkingBudget,
)

SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class ContextError(RequestError):
    """With the numbers that clients cut their prompts by."""

    n_prompt_tokens: int = 0
    n_ctx: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`prompt_param` is the field that an over-long prompt is blamed on.

    `kept_specials` are special tokens that stay in the text when others are skipped. With a
    `parser`, which is made once a choice, deltas have pieces.
    """

    card: ModelCard
    tokenizer: TextTokenizer
    response_id: str
    sampling: SamplingParams
    prompt_param: str
    choices: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    kept_specials: frozenset[int] = frozenset()
    parser: Callable[[], ReplyParser] | None = None
    cache_salt: str = ""
    grammar: str = ""
    prompt_logprobs: int | None = None
    thinking: ThinkingBudget | None = None
    priority: int = 0
    tells_progress: bool = False
    scores_end: bool = False

    def generations(self, prompts: Sequence[Sequence[int]]) -> list[Generation]:
        """`choices` for each prompt, next to each other. Choice i draws with seed + i."""
        check_ids(self.stop_token_ids, self.card, "stop_token_ids")
        return [
            self._generation(ids, choice, place * self.choices + choice)
            for place, ids in enumerate(map(tuple, prompts))  # one a prompt, to be hashed once
            for choice in range(self.choices)
        ]

    def _generation(self, ids: tuple[int, ...], choice: int, number: int) -> Generation:
        room = self._room(len(ids))
        request = GenerationRequest(
            request_id=f"{self.response_id}-{number}",
            response_id=self.response_id,
            prompt_ids=ids,
            sampling=seeded(self.sampling, choice),
            max_tokens=room,
            min_tokens=min(self.min_tokens, room),
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
            cache_salt=self.cache_salt,
            grammar=self.grammar,
            prompt_logprobs=self.prompt_logprobs if choice == 0 else None,
            thinking=self.thinking,
            priority=self.priority,
            tells_progress=self.tells_progress,
        )
        return Generation(request=request, text=self._text(), counts_prompt=choice == 0)

    def _room(self, prompt_tokens: int) -> int:
        """Tokens that may be generated: the request's limit, cut to what the context leaves."""
        context = self.card.context_length
        if not prompt_tokens:
            message = f"`{self.prompt_param}` comes to a prompt of no tokens"
            raise refused(message, self.prompt_param)
        if prompt_tokens >= context:
            message = (
                f"This model's maximum context length is {context} tokens, and the prompt has "
                f"{prompt_tokens} tokens, which leaves no room for an answer"
            )
            raise Refused(
                ContextError(
                    ErrorKind.CONTEXT_LENGTH, message, self.prompt_param, prompt_tokens, context
                )
            )
        limit = context if self.max_tokens is None else self.max_tokens
        return min(limit, context - prompt_tokens)

    def _text(self) -> TextStream:
        return TextStream(
            self.tokenizer,
            stops=self.stops,
            include_stop=self.include_stop,
            skip_special_tokens=self.skip_special_tokens,
            kept_specials=self.kept_specials,
            min_tokens=self.min_tokens,
            parser=None if self.parser is None else self.parser(),
            scores_end=self.scores_end,
        )


def seeded(sampling: SamplingParams, choice: int) -> SamplingParams:
    seed = (sampling.seed + choice) % SEEDS
    return sampling if seed == sampling.seed else replace(sampling, seed=seed)


def check_ids(ids: Sequence[int], card: ModelCard, param: str) -> None:
    if ids and max(ids) >= card.vocab_size:
        message = f"`{param}` has {max(ids)}, but the vocabulary has {card.vocab_size} tokens"
        raise refused(message, param)
