"""A request that ends replicas goes on to no third one; what was lost with it does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from ray.exceptions import ActorDiedError

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.ingress.fleet.partial_output import PartialOutput
from deployments.ingress.fleet.suspects import MAX_FORGIVEN, PROVEN_TOKENS, Suspects, Trace
from tests.ingress.fleet.actors import MODEL, Actors, Fate, produces

PLAIN = GenerationRequest(request_id="r", prompt_ids=(1, 2, 3), max_tokens=12)
NATIVE = replace(PLAIN, grammar="start: /a+/")


async def said(actors: Actors, request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    fleet = actors.fleet()
    async for event in fleet.generate(await fleet.card(MODEL), request):
        yield event


def n_tokens(actors: Actors, request: GenerationRequest) -> int:
    async def count() -> int:
        return sum([len(event.token_ids) async for event in said(actors, request)])

    return asyncio.run(count())


def dies(*after: int) -> list[Fate]:
    return [produces(n, ActorDiedError()) for n in after]


@pytest.mark.parametrize(
    ("request_", "after"), [(NATIVE, (3, 9)), (PLAIN, (3, 3)), (PLAIN, (0, 0))]
)
def test_a_request_in_whose_steps_two_replicas_died_ends(
    request_: GenerationRequest, after: Sequence[int]
) -> None:
    actors = Actors(*dies(*after), produces())
    with pytest.raises(Refused) as caught:
        n_tokens(actors, request_)
    assert caught.value.error.kind is ErrorKind.REPLICA_DIED
    assert len(actors.model.requests) == 2


def test_a_request_that_gets_on_outlives_any_number_of_replicas() -> None:
    assert n_tokens(Actors(*dies(2, 6, 10), produces()), PLAIN) == 12


def test_replicas_that_died_before_their_first_word_did_not_have_the_request() -> None:
    actors = Actors(*dies(0), produces())
    actors.model.stillborn = MAX_FORGIVEN
    assert n_tokens(actors, NATIVE) == 12
    assert actors.model.opened == MAX_FORGIVEN + 2


def test_a_request_with_which_one_replica_after_the_other_dies_ends() -> None:
    """The first words of some may be lost, too."""
    actors = Actors(*dies(0), produces())
    actors.model.stillborn = 10
    with pytest.raises(Refused):
        n_tokens(actors, NATIVE)
    assert actors.model.opened == MAX_FORGIVEN + 2


class Running:
    """Requests of one ingress, on the replica that each is told."""

    def __init__(self, suspects: Suspects, *requests: GenerationRequest) -> None:
        self._stack = [suspects.trace(PartialOutput(request), MODEL) for request in requests]
        self.traces: list[Trace] = [each.__enter__() for each in self._stack]
        self._suspects = suspects

    def begin(self, replica: str) -> None:
        for trace in self.traces:
            trace.begin(replica)

    async def died(self, trace: Trace) -> str:
        try:
            async with asyncio.timeout(0.05):
                await self._suspects.died(trace)
        except Refused:
            self.end(trace)
            return "ends"
        except TimeoutError:
            return "waits"
        return "goes on"

    async def all_died(self) -> list[str]:
        return [await self.died(trace) for trace in [*self.traces]]

    def end(self, trace: Trace) -> None:
        number = self.traces.index(trace)
        self.traces.pop(number)
        self._stack.pop(number).__exit__(None, None, None)


async def test_who_lost_two_replicas_beside_it_goes_on() -> None:
    running = Running(Suspects(), PLAIN, NATIVE, PLAIN)
    running.begin("a")
    assert await running.all_died() == ["goes on"] * 3
    running.begin("b")
    assert await running.all_died() == ["goes on", "ends", "goes on"]


@pytest.mark.parametrize("request_", [PLAIN, NATIVE])
async def test_several_that_may_be_it_go_on_one_at_a_time(request_: GenerationRequest) -> None:
    running = Running(Suspects(), request_, request_, request_)
    for replica in "ab":
        running.begin(replica)
        told = await running.all_died()
    assert told == ["goes on", "waits", "waits"]
    innocent, second, third = running.traces
    innocent.begin("c")
    innocent.output.add(TokenEvent(token_ids=(7,) * PROVEN_TOKENS))
    innocent.progress()
    assert await running.died(second) == "goes on"
    second.begin("c")
    assert await running.died(second) == "ends"
    assert await running.died(third) == "goes on"
