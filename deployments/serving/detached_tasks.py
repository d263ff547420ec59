"""Tasks that outlive the request that started them."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")


def create_detached_task(work: Coroutine[Any, Any, ValueT]) -> "asyncio.Task[ValueT]":
    """A task with a context of its own: when a request ends, Serve cancels all calls made in its
    context.
    """
    return asyncio.get_running_loop().create_task(work, context=Context())


def create_shared_task(work: Coroutine[Any, Any, ValueT]) -> "asyncio.Task[ValueT]":
    """Creates a task like `create_detached_task`, for several waiters, each of whom may leave."""
    task = create_detached_task(work)
    task.add_done_callback(_look_at)
    return task


async def to_its_end(work: Coroutine[Any, Any, ValueT]) -> ValueT:
    """The result of work that goes on when its client leaves: a connection in the midst of a
    statement could not be used again. The request ends with it, so that all that it holds counts
    for its client until then.
    """
    task = create_shared_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _look_at(done: "asyncio.Task[Any]") -> None:
    """Looks at a failure, which nobody else does when the client has left."""
    if not done.cancelled():
        done.exception()
