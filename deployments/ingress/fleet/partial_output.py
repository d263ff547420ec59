"""The output of a request so far: tokens, or parts of vectors.

Another replica continues from the tokens. Vectors begin anew.
"""

from dataclasses import replace

from deployments.contract.events import CachedBySource, TokenEvent
from deployments.contract.outputs import Vectors, join_vectors
from deployments.contract.requests import GenerationRequest, SamplingParams


class PartialOutput:
    """`has_progressed`: the attempt that `remaining_request` began has produced a token."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._ids: list[int] = list(request.produced_ids)
        self._mirostat = request.sampling.mirostat
        self._thinking = request.thinking
        self._prompt_logprobs = request.prompt_logprobs
        # Of the prompt, as it was first reported, and by source.
        self._cached: tuple[int, CachedBySource] | None = None
        self._prompt_tokens = 0  # that the client knows to be computed
        self._attempts = 0
        self._tokens_before = 0  # tokens, when the attempt began
        self._is_order_untold = False
        self._vectors: list[Vectors] = []  # of the newest attempt

    @property
    def request_id(self) -> str:
        return self._request.request_id

    @property
    def response_id(self) -> str:
        return self._request.response_id

    @property
    def n_tokens(self) -> int:
        """The length of the output so far."""
        return len(self._ids)

    @property
    def has_native_input(self) -> bool:
        """Whether libraries in C or Rust read what the client sent: no ids, but a language or a
        file.
        """
        return bool(self._request.grammar or self._request.media)

    @property
    def has_progressed(self) -> bool:
        return len(self._ids) > self._tokens_before

    @property
    def has_begun(self) -> bool:
        return len(self._ids) > len(self._request.produced_ids)

    def add(self, event: TokenEvent) -> TokenEvent:
        """Records the event, and returns it as the client shall see it: the usage does not count
        what a failover computed again, or found in the cache because of its own request.
        """
        cached = event.cached_tokens, event.cached_by_source
        if event.token_ids and self._cached is None:
            self._cached = cached
        if event.prompt_tokens is not None:
            self._prompt_tokens = max(self._prompt_tokens, event.prompt_tokens)
            event = replace(event, prompt_tokens=self._prompt_tokens)
        if event.vectors is not None:
            event = self._hold_back_vectors(event, event.vectors)
        self._ids += event.token_ids
        if event.prompt_logprobs is not None:
            self._prompt_logprobs = None
        if self._mirostat is not None and event.mirostat_mu is not None:
            self._mirostat = replace(self._mirostat, mu=event.mirostat_mu)
        if event.is_thinking_over:
            self.end_thinking()
            self._is_order_untold = False
        if self._cached is None or self._cached == cached:
            return event
        cached_tokens, by_source = self._cached
        return replace(event, cached_tokens=cached_tokens, cached_by_source=by_source)

    def _hold_back_vectors(self, event: TokenEvent, vectors: Vectors) -> TokenEvent:
        """The client sees all parts with the last event: a lost attempt leaves none behind."""
        self._vectors.append(vectors)
        is_last = event.finish_reason is not None
        return replace(event, vectors=join_vectors(self._vectors) if is_last else None)

    def end_thinking(self) -> bool:
        """Notes a client's order, so that it holds on every replica that goes on. False where the
        request has no thinking budget, which says how thinking ends.
        """
        if self._thinking is None:
            return False
        self._thinking = replace(self._thinking, tokens=0)
        self._is_order_untold = not self.has_progressed
        return True

    def take_untold_order(self) -> bool:
        """Whether the replica has to be told to end the thinking, once: the order came when its
        attempt had begun without it, and the replica may not have had the request yet.
        """
        is_due = self._is_order_untold and self.has_progressed
        self._is_order_untold = self._is_order_untold and not is_due
        return is_due

    def remaining_request(self) -> GenerationRequest:
        """The request of the next attempt, with an id of its own: the lost one may still run."""
        attempt, self._attempts = self._attempts, self._attempts + 1
        self._tokens_before = len(self._ids)
        self._is_order_untold = False
        self._vectors = []
        return replace(
            self._request,
            request_id=f"{self._request.request_id}-{attempt}",
            produced_ids=tuple(self._ids),
            sampling=self._sampling(),
            prompt_logprobs=self._prompt_logprobs,
            thinking=self._thinking,
        )

    def _sampling(self) -> SamplingParams:
        sampling = self._request.sampling
        return sampling if self._mirostat is None else replace(sampling, mirostat=self._mirostat)
