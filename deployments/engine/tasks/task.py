"""One sequence in the engine. A task belongs to the scheduler's thread and to no other."""

import sys
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deployments.engine.tasks.grammar_matcher import Grammar
from deployments.engine.tasks.mailbox import Mailbox
from deployments.engine.tasks.ngram_drafts import Drafts
from deployments.engine.tasks.repetitions import Repeats
from deployments.engine.tasks.thinking_tracker import Thought
from deployments.engine.tasks.token_counts import Said
from deployments.wire import (
    FinishReason,
    GenerationRequest,
    SamplingParams,
    TokenEvent,
    TokenLogprob,
)
from kv.hashing import page_hash, root_hash

Order = tuple[int, float, int]


@dataclass(slots=True, eq=False)
class Task:
    id: str  # unlike the request's own id, never used twice
    request: GenerationRequest
    mailbox: Mailbox
    end_token_ids: frozenset[int]
    tokens: NDArray[np.int64]  # room for all the task may ever hold; drafts behind the known ones
    n_prompt: int
    n_given: int  # prompt, and what an earlier replica produced
    n_tokens: int  # known: prompt and output
    n_limit: int  # known tokens at which it ends
    newest: int  # the last known token
    grammar: Grammar | None = None
    stalled: bool = False
    has_ended: bool = False
    arrival: int = 0  # a number that grows from task to task
    turn: float = 0.0  # of its client, when it came
    last_step: int = 0  # the number of the last step that it had a part in
    n_computed: int = 0  # their keys and values are in the cache
    cached_tokens: int = 0
    most_cached: int = sys.maxsize  # of them, before it was preempted: then its own are among them
    n_drafted: int = 0  # tokens that the step in progress takes for the next ones
    drafts: Drafts | None = None
    drafted_tokens: int = 0  # of which no event has told yet
    accepted_tokens: int = 0  # of these
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)  # from the second token on
    hashes: list[bytes] = field(default_factory=list)  # of the full pages of the known tokens
    changed: frozenset[str] | None = None  # fields in which its sampling is not neutral
    said: Said | None = None  # for the penalties
    repeats: Repeats | None = None  # for DRY
    mirostat_mu: float | None = None
    trusted_mu: float | None = None  # what it was after the last token
    bad_words: dict[int, dict[bytes, list[int]]] | None = None  # as `bans` looks them up
    thought: Thought | None = None
    thought_over: bool = False  # whatever is left of its budget; set from other threads

    @property
    def sampling(self) -> SamplingParams:
        return self.request.sampling

    @property
    def n_output(self) -> int:
        return self.n_tokens - self.n_prompt

    @property
    def n_uncomputed(self) -> int:
        return self.n_tokens - self.n_computed

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has been drawn for it yet."""
        return self.n_tokens == self.n_given

    @property
    def order(self) -> Order:
        """Of two tasks the one with the lower order runs first."""
        return self.request.priority, self.turn, self.arrival

    @property
    def draws(self) -> bool:
        """Whether a token may follow the known ones; a prompt may be computed for itself."""
        return self.n_tokens < self.n_limit

    @property
    def n_unscored(self) -> int:
        """Tokens of the prompt whose log-probabilities are wanted and not known yet."""
        request = self.request
        if request.prompt_logprobs is None or request.produced_ids:  # told with the first token
            return 0
        return self.n_prompt - 1 - len(self.prompt_logprobs)

    @property
    def tells_progress(self) -> bool:
        """Whether how much of its prompt is computed is to be told."""
        request = self.request
        return request.tells_progress and self.is_fresh and not request.produced_ids

    def progress(self, cached: int) -> TokenEvent:
        known, cached = min(self.n_computed, self.n_prompt), self.count_cached(cached)
        return TokenEvent(prompt_tokens=known, cached_tokens=cached)

    def count_cached(self, cached: int) -> int:
        """Of its cached tokens those of the prompt that it did not compute itself."""
        return min(cached, self.most_cached, self.n_prompt)

    @property
    def ends_banned(self) -> bool:
        return self.n_output < self.request.min_tokens

    def is_called(self, name: str) -> bool:
        """Whether `name` is the task's id or its request's."""
        return name in (self.id, self.request.request_id)

    def append(self, token_id: int) -> None:
        self.tokens[self.n_tokens] = self.newest = token_id
        self.n_tokens += 1
        if self.grammar is not None and token_id not in self.end_token_ids:
            self.grammar.advance([token_id])

    @property
    def failure(self) -> str:
        """Why nothing can follow although the output is not whole."""
        if self.grammar is not None:
            return self.grammar.failure
        return "every token is banned" if self.stalled else ""

    def rewind(self) -> None:
        """As if the step in progress had never been. What follows from the tokens is found anew."""
        self.n_drafted = 0
        self.mirostat_mu = self.trusted_mu
        self.said = self.repeats = self.thought = None

    def stall(self) -> None:
        """Takes note that no token was left to draw."""
        self.stalled = True
        if self.grammar is not None:
            self.grammar.stop()

    def end_token(self) -> int | None:
        """The token that has ended the output, if one did."""
        if self.newest in self.end_token_ids and self.n_tokens > self.n_prompt:
            return self.newest
        return None

    def take_drafted(self) -> tuple[int, int]:
        """How many tokens were drafted since the last event, and how many of them were right."""
        taken = self.drafted_tokens, self.accepted_tokens
        self.drafted_tokens = self.accepted_tokens = 0
        return taken

    def finish_reason(self) -> FinishReason | None:
        """Whether the output has ended the sequence."""
        if self.end_token() is not None:
            return FinishReason.STOP
        if self.grammar is not None and self.grammar.is_over:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.n_tokens >= self.n_limit else None

    def usable_pages(self, page_size: int) -> list[bytes]:
        """Hashes of the pages that it need not compute where they are cached."""
        hashes = self.hash_pages(page_size)
        # The logits behind every token that is not scored yet have to be seen.
        return hashes[: len(self.prompt_logprobs) // page_size] if self.n_unscored else hashes

    def hash_pages(self, page_size: int) -> list[bytes]:
        """Hashes of all full pages of the known tokens; each is computed once."""
        hashes = self.hashes
        for end in range((len(hashes) + 1) * page_size, self.n_tokens + 1, page_size):
            parent = hashes[-1] if hashes else root_hash(self.request.cache_salt)
            hashes.append(page_hash(parent, self.tokens[end - page_size : end].tobytes()))
        return hashes

    def filled_by(self, n: int, page_size: int) -> list[bytes]:
        """Hashes of the pages that its next `n` tokens fill."""
        first, end = self.n_computed // page_size, (self.n_computed + n) // page_size
        return self.hash_pages(page_size)[first:end] if first < end else []


def make_task(
    task_id: str,
    request: GenerationRequest,
    mailbox: Mailbox,
    eos_token_ids: frozenset[int],
    context_length: int,
) -> Task:
    """A task for a request that was validated."""
    n_prompt, n_produced = len(request.prompt_ids), len(request.produced_ids)
    n_tokens = n_prompt + n_produced
    n_limit = context_length
    if request.max_tokens is not None:
        n_limit = min(n_limit, n_prompt + request.max_tokens)
    tokens = np.empty(max(n_limit, n_tokens), dtype=np.int64)
    tokens[:n_prompt] = request.prompt_ids
    tokens[n_prompt:n_tokens] = request.produced_ids
    ends = frozenset(request.stop_token_ids)
    return Task(
        id=task_id,
        request=request,
        mailbox=mailbox,
        end_token_ids=ends if request.ignore_eos else ends | eos_token_ids,
        tokens=tokens,
        n_prompt=n_prompt,
        n_given=n_tokens,
        n_tokens=n_tokens,
        n_limit=n_limit,
        newest=int(tokens[n_tokens - 1]),
    )
