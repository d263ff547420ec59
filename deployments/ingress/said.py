"""What a request has had of its answer, so that another replica can go on from there."""

from dataclasses import replace

from deployments.wire import GenerationRequest, TokenEvent


class Said:
    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._ids: list[int] = list(request.produced_ids)
        self._mirostat = request.sampling.mirostat
        self._prompt_logprobs = request.prompt_logprobs

    def add(self, event: TokenEvent) -> None:
        self._ids += event.token_ids
        if event.prompt_logprobs is not None:
            self._prompt_logprobs = None
        if self._mirostat is not None and event.mirostat_mu is not None:
            self._mirostat = replace(self._mirostat, mu=event.mirostat_mu)

    def rest(self, attempt: int) -> GenerationRequest:
        """With a name of its own: the lost attempt may still run where it was sent."""
        return replace(
            self._request,
            request_id=f"{self._request.request_id}-{attempt}",
            produced_ids=tuple(self._ids),
            sampling=replace(self._request.sampling, mirostat=self._mirostat),
            prompt_logprobs=self._prompt_logprobs,
        )
