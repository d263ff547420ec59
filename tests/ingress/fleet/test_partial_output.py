"""The request with which another replica goes on, when one was lost in mid-answer."""

from deployments.contract.events import CacheSource, FinishReason, TokenEvent
from deployments.contract.outputs import Vectors
from deployments.contract.requests import GenerationRequest, MirostatParams, SamplingParams
from deployments.ingress.fleet.partial_output import PartialOutput

MIROSTAT = SamplingParams(mirostat=MirostatParams(version=2), seed=5)


def asked(sampling: SamplingParams = MIROSTAT) -> GenerationRequest:
    return GenerationRequest(
        request_id="r", prompt_ids=(1, 2), sampling=sampling, prompt_logprobs=0, max_tokens=9
    )


def test_nothing_was_said_and_all_is_asked_again_by_another_name() -> None:
    said = PartialOutput(asked())
    assert said.remaining_request().request_id == "r-0"
    rest = said.remaining_request()
    assert rest.request_id == "r-1"
    assert (rest.produced_ids, rest.prompt_logprobs, rest.sampling) == ((), 0, MIROSTAT)


def test_what_was_said_counts_and_is_not_told_twice() -> None:
    said = PartialOutput(asked())
    said.add(TokenEvent(token_ids=(7,), prompt_logprobs=(None, None), mirostat_mu=9.5))
    said.add(TokenEvent(token_ids=(8, 9), mirostat_mu=8.25))
    rest = said.remaining_request()
    assert rest.produced_ids == (7, 8, 9)
    assert rest.prompt_logprobs is None
    assert rest.sampling.mirostat == MirostatParams(version=2, mu=8.25)
    assert (rest.prompt_ids, rest.max_tokens, rest.sampling.seed) == ((1, 2), 9, 5)


def test_without_mirostat_there_is_no_state() -> None:
    said = PartialOutput(asked(SamplingParams()))
    said.add(TokenEvent(token_ids=(7,)))
    assert said.remaining_request().sampling == SamplingParams()


def test_what_came_to_nothing_is_told_from_what_got_on() -> None:
    said = PartialOutput(asked())
    said.remaining_request()
    assert (said.has_progressed, said.has_begun) == (False, False)
    said.add(TokenEvent(token_ids=(7,)))
    assert (said.has_progressed, said.has_begun) == (True, True)
    said.remaining_request()
    assert (said.has_progressed, said.has_begun) == (False, True)


def test_the_prompt_was_cached_as_far_as_was_said_first() -> None:
    said = PartialOutput(asked())
    said.remaining_request()
    by_source = ((CacheSource.DEVICE, 4), (CacheSource.DISK, 12))
    first = TokenEvent(token_ids=(7,), cached_tokens=16, cached_by_source=by_source)
    assert said.add(first) is first
    said.remaining_request()
    second = said.add(TokenEvent(token_ids=(8,), cached_tokens=2))
    for event in (second, said.add(TokenEvent(finish_reason=FinishReason.STOP))):
        assert (event.cached_tokens, event.cached_by_source) == (16, by_source)


def test_an_attempt_without_a_token_says_nothing_of_the_cache() -> None:
    said = PartialOutput(asked())
    said.remaining_request()
    said.add(TokenEvent(cached_tokens=32))
    said.remaining_request()
    assert said.add(TokenEvent(token_ids=(7,), cached_tokens=16)).cached_tokens == 16


def test_a_prompt_that_is_computed_again_never_seems_to_go_back() -> None:
    said = PartialOutput(asked())
    for told, known in ((64, 64), (0, 64), (100, 100)):
        assert said.add(TokenEvent(prompt_tokens=told)).prompt_tokens == known


def test_vectors_come_whole_from_the_replica_that_ends() -> None:
    one, two = Vectors(1, bytes(8)), Vectors(1, bytes(range(8)))
    last = TokenEvent(vectors=two, finish_reason=FinishReason.STOP)
    said = PartialOutput(asked(SamplingParams()))
    said.remaining_request()
    assert said.add(TokenEvent(vectors=one)) == TokenEvent()
    said.remaining_request()  # it was lost with its first part
    said.add(TokenEvent(vectors=one))
    assert said.add(last).vectors == Vectors(2, one.data + two.data)
