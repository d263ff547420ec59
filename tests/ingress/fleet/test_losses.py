"""Losses between processes: what can be asked for again, and what would be lost again."""

import asyncio

import grpc  # type: ignore[import-untyped]
import pytest

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.fleet.attempt import ReplicaLostError, translate_ray_errors


async def ask(answer: bytes | None) -> None:
    """Asks over a channel as Ray Serve makes it: a message has at most 4 MiB."""

    async def answering(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        if answer is None:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Out of memory")
        return answer or b""

    method = grpc.unary_unary_rpc_method_handler(answering)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a", {"b": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with translate_ray_errors():
                await channel.unary_unary("/a/b")(b"")
    finally:
        await server.stop(None)


def test_what_no_message_can_hold_is_refused_at_once() -> None:
    with pytest.raises(Refused) as refusal:
        asyncio.run(ask(b"x" * (5 << 20)))
    assert refusal.value.error.kind is ErrorKind.INVALID_REQUEST
    assert "log-probabilities" in refusal.value.error.message


def test_what_a_replica_could_not_do_another_may() -> None:
    with pytest.raises(ReplicaLostError, match="Out of memory"):
        asyncio.run(ask(None))
    asyncio.run(ask(b"x"))
