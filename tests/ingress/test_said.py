"""What another replica is asked to go on with, when one was lost in mid-answer."""

from deployments.ingress.said import Said
from deployments.wire import (
    GenerationRequest,
    MirostatParams,
    SamplingParams,
    TokenEvent,
)

MIROSTAT = SamplingParams(mirostat=MirostatParams(version=2), seed=5)


def asked(sampling: SamplingParams = MIROSTAT) -> GenerationRequest:
    return GenerationRequest(
        request_id="r", prompt_ids=(1, 2), sampling=sampling, prompt_logprobs=0, max_tokens=9
    )


def test_nothing_was_said_and_all_is_asked_again_by_another_name() -> None:
    rest = Said(asked()).rest(3)
    assert rest.request_id == "r-3"
    assert (rest.produced_ids, rest.prompt_logprobs, rest.sampling) == ((), 0, MIROSTAT)


def test_what_was_said_counts_and_is_not_told_twice() -> None:
    said = Said(asked())
    said.add(TokenEvent(token_ids=(7,), prompt_logprobs=(None, None), mirostat_mu=9.5))
    said.add(TokenEvent(token_ids=(8, 9), mirostat_mu=8.25))
    rest = said.rest(1)
    assert rest.produced_ids == (7, 8, 9)
    assert rest.prompt_logprobs is None
    assert rest.sampling.mirostat == MirostatParams(version=2, mu=8.25)
    assert (rest.prompt_ids, rest.max_tokens, rest.sampling.seed) == ((1, 2), 9, 5)


def test_without_mirostat_there_is_no_state() -> None:
    said = Said(asked(SamplingParams()))
    said.add(TokenEvent(token_ids=(7,)))
    assert said.rest(1).sampling == SamplingParams()
