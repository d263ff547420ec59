"""A request's fields and prompts as generations, kept within the model's limits."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deployments.contract.errors import ErrorKind, Refused, RequestError, refused
from deployments.contract.grammar_triggers import GrammarTriggers
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest, MediumFile, SamplingParams
from deployments.contract.served_adapters import contents
from deployments.contract.slots import MAX_SLOTS
from deployments.ingress.generation.chosen_adapters import LoraScales, chosen_adapters
from deployments.ingress.generation.response_builder import Generation
from deployments.text.chat.prompt import Prompt
from deployments.text.grammar.grammar import check_grammar
from deployments.text.grammar.reader import GrammarTokens
from deployments.text.stream import TextStream
from deployments.text.tokens.tokenizer import COUNTED_LIMITS, TextTokenizer
from kv.content import Content

N_SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class ContextError(RequestError):
    """An error with the numbers from which clients see how much of a prompt to cut."""

    n_prompt_tokens: int = 0
    n_ctx: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Fields of a request that choose how its answers are generated, in no protocol's words. The
    defaults are those of a request that has none of them.
    """

    choices: int = 1  # of each prompt
    max_tokens: int | None = None
    min_tokens: int = 0
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    cache_salt: str = ""
    is_cached: bool = True  # else it uses no cached prefix, and nobody finds its own
    id_slot: int = -1  # which the first choice of the last prompt leaves its sequence in
    lora: LoraScales | None = None  # None leaves the adapters to the name of the model
    prompt_logprobs: int | None = None
    priority: int = 0
    tells_progress: bool = False
    scores_end: bool = False


NO_OPTIONS = PlanOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Generations of a request's prompts. Errors about the length of a prompt name the field
    `prompt_param`.
    """

    card: ModelCard
    tokenizer: TextTokenizer
    response_id: str
    prompts: Sequence[Prompt]
    sampling: SamplingParams
    prompt_param: str
    options: PlanOptions = NO_OPTIONS

    def generations(self) -> list[Generation]:
        """The choices of a prompt are next to each other. Choice i samples with seed + i."""
        options = self.options
        check_ids(options.stop_token_ids, self.card, "stop_token_ids")
        check_slot(options.id_slot, self.card)
        self._check_grammars()
        salt = options.cache_salt if options.is_cached else secrets.token_hex(16)
        content = Content(salt, contents(chosen_adapters(self.card, options.lora)))
        for prompt in self.prompts:
            self._check_length(len(prompt.ids))
        # All choices of a prompt share one tuple of ids, which is hashed once.
        prompts = [(prompt, tuple(prompt.ids)) for prompt in self.prompts]
        return [
            self._generation(prompt, ids, content, choice, index * options.choices + choice)
            for index, (prompt, ids) in enumerate(prompts)
            for choice in range(options.choices)
        ]

    def _check_grammars(self) -> None:
        card = self.card
        tokens = GrammarTokens(card.tokenizer_json, card.vocab_size, card.eos_token_ids)
        for grammar, param in {(each.grammar, each.grammar_param) for each in self.prompts}:
            if grammar:
                check_grammar(grammar, tokens, param)

    def _generation(
        self, prompt: Prompt, ids: tuple[int, ...], content: Content, choice: int, index: int
    ) -> Generation:
        options, room = self.options, self._room(len(ids))
        request = GenerationRequest(
            request_id=f"{self.response_id}-{index}",
            response_id=self.response_id,
            prompt_ids=ids,
            sampling=seeded(self.sampling, choice),
            max_tokens=room,
            min_tokens=min(options.min_tokens, room),
            stop_token_ids=options.stop_token_ids,
            ignore_eos=options.ignore_eos,
            content=replace(content, media=prompt.placeholder_ranges)
            if prompt.placeholder_ranges
            else content,
            media=tuple(MediumFile(kind=medium.kind, data=medium.data) for medium in prompt.media),
            grammar=prompt.grammar,
            triggers=self._triggers(prompt),
            prompt_logprobs=options.prompt_logprobs if choice == 0 else None,
            thinking=prompt.thinking,
            message_starts=prompt.message_starts,
            priority=options.priority,
            is_kept=options.is_cached,
            id_slot=self._slot(index),
            tells_progress=options.tells_progress,
        )
        return Generation(
            request=request,
            text=self._text(prompt),
            counts_prompt=choice == 0,
            warnings=prompt.warnings,
        )

    def _slot(self, index: int) -> int:
        """The slot of a generation, by its number among all. -1: none."""
        is_last = index == (len(self.prompts) - 1) * self.options.choices
        return self.options.id_slot if is_last and self.card.saves_slots else -1

    def _triggers(self, prompt: Prompt) -> GrammarTriggers | None:
        """They are looked for in the text that the parser reads."""
        if prompt.triggers is None:
            return None
        return replace(
            prompt.triggers,
            kept_specials=prompt.kept_specials,
            skip_special_tokens=self.options.skip_special_tokens,
        )

    def _check_length(self, prompt_tokens: int) -> None:
        """Checks the length before the ids are copied.

        There may be millions of what is too long.
        """
        if not prompt_tokens:
            message = f"`{self.prompt_param}` comes to a prompt of no tokens"
            raise refused(message, self.prompt_param)
        check_fits(prompt_tokens, self.card, self.prompt_param)

    def _room(self, prompt_tokens: int) -> int:
        """Tokens that may be generated: the request's limit, cut to what the context leaves."""
        context, limit = self.card.context_length, self.options.max_tokens
        limit = context if limit is None else limit
        return min(limit, context - prompt_tokens)

    def _text(self, prompt: Prompt) -> TextStream:
        options = self.options
        return TextStream(
            self.tokenizer,
            stops=options.stops,
            include_stop=options.include_stop,
            skip_special_tokens=options.skip_special_tokens,
            kept_specials=prompt.kept_specials,
            min_tokens=options.min_tokens,
            parser=prompt.parser(),
            skips_thoughts=prompt.thinks,
            scores_end=options.scores_end,
        )


def seeded(sampling: SamplingParams, choice: int) -> SamplingParams:
    seed = (sampling.seed + choice) % N_SEEDS
    return sampling if seed == sampling.seed else replace(sampling, seed=seed)


def check_fits(prompt_tokens: int, card: ModelCard, param: str) -> None:
    """Raises Refused for a prompt that fills the context."""
    context = card.context_length
    if prompt_tokens >= context:
        about = "about " if prompt_tokens > COUNTED_LIMITS * context else ""
        message = (
            f"This model's maximum context length is {context} tokens, and the prompt has "
            f"{about}{prompt_tokens} tokens, which leaves no room for an answer"
        )
        raise Refused(
            ContextError(ErrorKind.CONTEXT_LENGTH, message, param, prompt_tokens, context)
        )


def check_ids(ids: Sequence[int], card: ModelCard, param: str) -> None:
    if ids and max(ids) >= card.vocab_size:
        message = f"`{param}` has {max(ids)}, but the vocabulary has {card.vocab_size} tokens"
        raise refused(message, param)


def check_slot(id_slot: int, card: ModelCard) -> None:
    """Raises Refused for a slot that there can't be. Without slots any number does nothing."""
    if card.saves_slots and id_slot >= MAX_SLOTS:
        raise refused(f"`id_slot` must be less than {MAX_SLOTS}", "id_slot")
