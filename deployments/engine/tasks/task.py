"""One sequence in the engine. A task belongs to the scheduler's thread and to no other."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deployments.contract.events import (
    CachedBySource,
    CacheSource,
    FinishReason,
    TokenEvent,
    TokenLogprob,
)
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.tasks.constraint import ANY_TOKEN, Constraint
from deployments.engine.tasks.drafts import Drafts
from deployments.engine.tasks.mailbox import Mailbox
from deployments.engine.tasks.pooled import Pooled
from deployments.engine.tasks.sampling_state import SamplingState
from kv.content import Adapter, page_hash

Order = tuple[int, bool, float, int]  # priority, whether it is pooling, virtual start, arrival


@dataclass(slots=True, eq=False)
class Task:
    id: str  # unlike the request's own id, never used twice
    request: GenerationRequest
    mailbox: Mailbox
    end_token_ids: frozenset[int]
    # Room for all tokens that the task may ever hold. Behind the known ones stand drafted ones.
    tokens: NDArray[np.int64]
    n_prompt: int
    n_given: int  # tokens of the prompt, and what an earlier replica produced
    n_tokens: int  # known tokens: prompt and output
    n_limit: int  # known tokens at which it ends
    newest: int  # the last known token
    constraint: Constraint = ANY_TOKEN
    is_stalled: bool = False
    has_ended: bool = False
    arrival: int = 0  # this and the next one are the fair queue's
    virtual_start: float = 0.0
    last_step: int = 0  # the number of the last step that it had a row in
    n_computed: int = 0  # tokens whose keys and values are in the cache
    cached_tokens: int = 0  # of the prompt, when its first token was sampled
    cached_by_source: CachedBySource = ()  # the same tokens, where there are several sources
    # Tokens of its prefix that needs have brought, for each source that there is but the device.
    fetched: dict[CacheSource, int] = field(default_factory=dict)
    max_cached: int = sys.maxsize  # cached tokens when it was preempted; later ones are its own
    branches: set[int] = field(default_factory=set)  # tokens behind which others may go on
    n_drafted: int = 0  # tokens that the step in progress takes for the next ones
    drafts: Drafts = field(default_factory=Drafts)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)  # from the second token on
    hashes: list[bytes] = field(default_factory=list)  # of the full pages of the known tokens
    sampling_state: SamplingState = field(default_factory=SamplingState)
    pooled: Pooled | None = None  # of a pooling task: its answer is vectors
    parts: dict[type, Any] = field(default_factory=dict)  # by the needs that prepared it

    @property
    def sampling(self) -> SamplingParams:
        return self.request.sampling

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """The adapters that change anything."""
        return tuple(adapter for adapter in self.request.content.adapters if adapter.scale)

    @property
    def n_uncomputed(self) -> int:
        return self.n_tokens - self.n_computed

    @property
    def drafted(self) -> list[int]:
        """The tokens that the step in progress takes for the next ones."""
        drafted: list[int] = self.tokens[self.n_tokens : self.n_tokens + self.n_drafted].tolist()
        return drafted

    @property
    def has_no_sample(self) -> bool:
        """Whether no token has been sampled for it here."""
        return self.n_tokens == self.n_given

    @property
    def is_pooling(self) -> bool:
        """Whether its answer is vectors."""
        return self.pooled is not None

    @property
    def order(self) -> Order:
        """The task with the lowest order runs first. A pooling task is behind what is
        streamed, and has its virtual start among its like alone.
        """
        return self.request.priority, self.is_pooling, self.virtual_start, self.arrival

    @property
    def n_unscored(self) -> int:
        """Tokens of the prompt whose log-probabilities are asked for and not known yet."""
        request = self.request
        # They come with the first token.
        if request.prompt_logprobs is None or request.produced_ids:
            return 0
        return self.n_prompt - 1 - len(self.prompt_logprobs)

    @property
    def needs_results(self) -> bool:
        """Whether what its next row is to compute is known when the last one is done."""
        return bool(self.n_unscored) or self.is_pooling

    @property
    def needs_every_position(self) -> bool:
        """Whether pages that were computed for others are of no use to it."""
        return bool(self.n_unscored) or (self.pooled is not None and self.pooled.needs_all_tokens)

    @property
    def reports_progress(self) -> bool:
        """Whether events say how much of the prompt is computed: until the first token."""
        request = self.request
        return request.tells_progress and self.has_no_sample and not request.produced_ids

    def progress(self, cached: int) -> TokenEvent:
        """An event that says so; `cached` tokens were found in the cache."""
        return TokenEvent(
            prompt_tokens=min(self.n_computed, self.n_prompt),
            cached_tokens=self.count_cached(cached),
            cached_by_source=self.count_by_source(cached),
        )

    def count_cached(self, cached: int) -> int:
        """Returns how many of `cached` tokens are of the prompt and not computed by itself."""
        return min(cached, self.max_cached, self.n_prompt)

    def count_by_source(self, cached: int) -> CachedBySource:
        """Says where the tokens of `count_cached` come from, if not from the device alone. What was
        fetched is the end of them."""
        if not self.fetched:
            return ()
        left = self.count_cached(cached)
        counts = {CacheSource.DEVICE: cached - sum(self.fetched.values()), **self.fetched}
        for source, n in counts.items():
            counts[source] = min(n, left)
            left -= counts[source]
        return tuple(counts.items())

    @property
    def names(self) -> frozenset[str]:
        """The task's id and its request's."""
        return frozenset((self.id, self.request.request_id))

    def constrain(self, constraint: Constraint) -> None:
        """Says what may follow. To be called before it runs."""
        self.constraint = constraint

    def end(self) -> None:
        self.has_ended = True

    def skip(self, n: int) -> None:
        """Its next `n` tokens were computed for another task."""
        self.n_computed += n

    def draft(self, token_ids: Sequence[int]) -> None:
        """Has the next step take these tokens for those that follow."""
        self.n_drafted = len(token_ids)
        self.tokens[self.n_tokens : self.n_tokens + self.n_drafted] = token_ids

    def append(self, token_id: int) -> None:
        """Makes a sampled token the last known one."""
        self.tokens[self.n_tokens] = self.newest = token_id
        self.n_tokens += 1
        if token_id not in self.end_token_ids:
            self.constraint.advance(token_id)
        self.sampling_state.commit()

    def refuses(self, token_id: int | None) -> bool:
        """Whether a sampled token can't follow after all, and another one is to be sampled."""
        if token_id is None or token_id in self.end_token_ids:
            return False
        return self.constraint.refuses(token_id)

    @property
    def failure(self) -> str:
        """Why nothing can follow although the output is not whole."""
        constraint = self.constraint
        if self.is_stalled and not (constraint.failure or constraint.is_over):
            return "every token is banned"
        return constraint.failure

    def rewind(self) -> None:
        """Undoes the step in progress."""
        self.n_drafted = 0
        self.sampling_state.rewind()

    def stall(self) -> None:
        """No token was left to sample."""
        self.is_stalled = True
        self.constraint.stall()

    def end_token(self) -> int | None:
        """The token that has ended the output, if one did."""
        if self.newest in self.end_token_ids and self.n_tokens > self.n_prompt:
            return self.newest
        return None

    def finish_reason(self) -> FinishReason | None:
        """Whether the output has ended the sequence."""
        if self.end_token() is not None:
            return FinishReason.STOP
        if self.constraint.is_over:
            return FinishReason.STOP
        if self.n_tokens < self.n_limit:
            return None
        return FinishReason.STOP if self.is_pooling else FinishReason.LENGTH

    def usable_pages(self, page_size: int) -> list[bytes]:
        """Hashes of the pages that it need not compute if they are cached."""
        if self.pooled is not None and self.pooled.needs_all_tokens:
            return []
        hashes = self.hash_pages(page_size)
        # Log-probabilities need the logits behind every token before the ones they are of.
        return hashes[: len(self.prompt_logprobs) // page_size] if self.n_unscored else hashes

    def hash_pages(self, page_size: int) -> list[bytes]:
        """Hashes of all full pages of the known tokens; each is computed once."""
        hashes, content = self.hashes, self.request.content
        for end in range((len(hashes) + 1) * page_size, self.n_tokens + 1, page_size):
            first = end - page_size
            parent = hashes[-1] if hashes else content.root()
            page = self.tokens[first:end].tobytes()
            hashes.append(page_hash(parent, page, content.extra(first, end)))
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
    pooled: Pooled | None = None,
) -> Task:
    """A task for a valid request. `context_length` bounds its tokens, prompt and output."""
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
        pooled=pooled,
    )
