"""Tasks that outlive the request which began them."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")


def create_detached_task(work: Coroutine[Any, Any, ValueT]) -> "asyncio.Task[ValueT]":
    """Serve cancels every call made in the context of a request that has ended."""
    return asyncio.get_running_loop().create_task(work, context=Context())
