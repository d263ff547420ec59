"""A thought that is told to be over ends at once, and is what it was until then."""

import asyncio
from dataclasses import replace

import pytest

from deployments.contract.events import TokenEvent
from deployments.contract.requests import SamplingParams, ThinkingBudget
from deployments.ingress.fleet.partial_output import PartialOutput
from tests.engine.drive import Engine, Record, engine, random_ids, request

START, END = 5, (7, 8, 9)
BUDGET = ThinkingBudget(tokens=1000, start_ids=(START,), end_ids=END, open=True)
ONE = replace(
    request("r-0", random_ids(9), SamplingParams(temperature=3, seed=1), max_tokens=30),
    thinking=BUDGET,
    response_id="r",
)
OTHER = replace(ONE, request_id="r-1", thinking=None)


async def ended(running: Engine, response_id: str) -> tuple[Record, Record, bool]:
    """Told so when the first tokens have come."""
    records = Record(), Record()
    running.gate.close()

    async def read(at: int) -> None:
        async for event in running.core.stream((ONE, OTHER)[at]):
            records[at].put(event)

    tasks = [asyncio.create_task(read(at)) for at in range(2)]
    await asyncio.sleep(0)
    while not records[0].events:
        running.gate.step()
        for _ in range(3):  # what was delivered is read
            await asyncio.sleep(0)
    found = running.core.end_thoughts(response_id)
    running.gate.open()
    await asyncio.gather(*tasks)
    assert not running.core.end_thoughts(response_id), "nothing runs any more"
    return *records, found


def test_its_replica_tells_so_and_another_one_goes_on_as_it_would_have() -> None:
    """The other one gets a budget that is spent, as the ingress asks for it."""
    with engine() as running:
        over, beside, _ = asyncio.run(ended(running, "r"))
        ids = over.outcome.token_ids
        told = [event.is_thinking_over for event in over.events].index(True)
        n_before = len([id for event in over.events[:told] for id in event.token_ids])
        spent = replace(BUDGET, tokens=0)
        resumed = replace(ONE, produced_ids=ids[: n_before + 1], thinking=spent)
        assert running.run(resumed)[0].token_ids == ids[n_before + 1 :]
    assert sum(event.is_thinking_over for event in over.events) == 1
    assert not any(event.is_thinking_over for event in beside.events)


def test_it_ends_there_and_only_there() -> None:
    with engine() as running:
        left, beside, found = asyncio.run(ended(running, "s"))
        over, still_beside, told = asyncio.run(ended(running, "r"))
    assert (found, told) == (False, True)
    assert still_beside.outcome.token_ids == beside.outcome.token_ids
    undisturbed, ids = left.outcome.token_ids, over.outcome.token_ids
    cut = ids.index(END[0])
    assert 1 <= cut < 5
    assert ids[cut : cut + 3] == END
    assert ids[:cut] == undisturbed[:cut]
    assert len(ids) == len(undisturbed) == 30


@pytest.mark.parametrize("n_known", range(1, 9))
def test_an_order_lost_with_its_replica_ends_the_thought_once_on_the_next_one(
    n_known: int,
) -> None:
    """The ingress has noted it. It knows any number of the tokens that the lost replica drew, of
    the end of the thought as well.
    """
    with engine() as running:
        over, _, _ = asyncio.run(ended(running, "r"))
        ids = over.outcome.token_ids
        cut = ids.index(END[0])
        output = PartialOutput(ONE)
        output.remaining_request()
        output.add(TokenEvent(token_ids=ids[:n_known]))
        assert output.end_thinking()
        resumed = running.run(output.remaining_request())[0].token_ids
        undisturbed = running.run(replace(ONE, request_id="r-2"))[0].token_ids
    whole = (*ids[:n_known], *resumed)
    end = min(n_known, cut)
    assert whole[end : end + 3] == END
    assert whole[:end] == undisturbed[:end]
    if n_known >= cut:
        assert whole == ids, "as on the replica that was lost"
    ends = [at for at in range(len(whole) - 2) if whole[at : at + 3] == END]
    assert all(at == end or whole[at - 1] == START for at in ends), "one end for each thought"
