"""Who asks for it hears how much of a prompt is computed; what is drawn is the same."""

from dataclasses import replace

import pytest

from deployments.contract.events import TokenEvent
from tests.engine.drive import Engine, engine, random_ids, request, roomy

LONG = replace(request("long", random_ids(22, seed=3), max_tokens=4), tells_progress=True)


def events_of(running: Engine, **changes: object) -> list[TokenEvent]:
    return [event for _, event in running.core.run([replace(LONG, **changes)])]  # type: ignore[arg-type]


def told(events: list[TokenEvent]) -> list[int | None]:
    return [event.prompt_tokens for event in events]


@pytest.mark.parametrize("is_async", [False, True])
def test_every_chunk_of_a_prompt_is_told(is_async: bool) -> None:
    with engine(
        limits=roomy(max_running=8, max_batch_tokens=8, async_scheduling=is_async)
    ) as running:
        first = events_of(running)
        assert told(first) == [0, 8, 16, 22, None, None, None, None]
        again = events_of(running)
        assert told(again) == [20, 22, None, None, None, None]
        assert {event.cached_tokens for event in again} == {20}
        silent = events_of(running, tells_progress=False)
        assert told(silent) == [None] * 4
        ids = [
            [event.token_ids for event in events if event.token_ids] for events in (first, again)
        ]
        assert ids == [[event.token_ids for event in silent]] * 2


def test_what_goes_on_elsewhere_tells_nothing_of_its_prompt() -> None:
    with engine() as running:
        assert told(events_of(running, produced_ids=(5, 6))) == [None] * 2
