"""Events reach their readers in order and whole, however they pile up on the way."""

import asyncio
import threading
from queue import SimpleQueue

from deployments.contract.events import FinishReason, TokenEvent, merge
from deployments.engine.tasks.mailbox import LoopMailbox, Mailbox, ThreadMailbox, deliver

EVENTS = [
    *(TokenEvent(token_ids=(token_id,)) for token_id in range(5)),
    TokenEvent(finish_reason=FinishReason.ABORT),
]


def test_readers_on_several_loops_and_threads_each_get_their_own_events_in_order() -> None:
    plain: SimpleQueue[tuple[int, TokenEvent]] = SimpleQueue()
    ready: SimpleQueue[LoopMailbox] = SimpleQueue()
    got: dict[int, tuple[int, ...]] = {}

    async def read(number: int) -> None:
        mailbox = LoopMailbox()
        ready.put(mailbox)
        parts = [event async for event in mailbox.events()]
        got[number] = merge(parts).token_ids

    readers = [threading.Thread(target=lambda n=n: asyncio.run(read(n))) for n in range(2)]
    for reader in readers:
        reader.start()
    mailboxes: list[Mailbox] = [ThreadMailbox(7, plain), ready.get(), ready.get()]
    for event in EVENTS:
        deliver([(mailbox, event) for mailbox in mailboxes])
    for reader in readers:
        reader.join()
    assert got == {0: (0, 1, 2, 3, 4), 1: (0, 1, 2, 3, 4)}
    assert [plain.get() for _ in EVENTS] == [(7, event) for event in EVENTS]


def test_events_for_a_loop_that_is_gone_are_no_error() -> None:
    async def mailbox() -> LoopMailbox:
        return LoopMailbox()

    gone = asyncio.run(mailbox())
    plain: SimpleQueue[tuple[int, TokenEvent]] = SimpleQueue()
    deliver([(gone, EVENTS[-1]), (ThreadMailbox(0, plain), EVENTS[-1])])
    assert plain.get() == (0, EVENTS[-1])
