"""The bytes of prompts' log-probabilities: a short request may have them in each of its choices."""

from collections.abc import Callable, Sequence

from deployments.ingress.generation.response_builder import Generation

TOKEN_BYTES = 400  # of one alternative: as it comes, as an object, and as JSON


def reserve_nothing(n_bytes: int) -> None:
    return


class PromptScores:
    """Counts them for the budget of a request, once however often it is prepared."""

    def __init__(self, reserve: Callable[[int], None]) -> None:
        self._reserve = reserve
        self._n_reserved = 0

    def reserve(self, generations: Sequence[Generation]) -> None:
        """Raises Refused."""
        n_bytes = sum(
            len(request.prompt_ids) * (1 + request.prompt_logprobs) * TOKEN_BYTES
            for request in (generation.request for generation in generations)
            if request.prompt_logprobs is not None
        )
        if n_bytes > self._n_reserved:
            self._reserve(n_bytes - self._n_reserved)
            self._n_reserved = n_bytes
