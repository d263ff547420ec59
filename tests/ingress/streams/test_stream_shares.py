"""Kept streams and their readers belong to clients, each of whom has a share and no more."""

import gc

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.streams.replay_buffer import PIECE_BYTES, ReplayBuffer
from tests.ingress.engines import fails, forever
from tests.ingress.streams.test_resumable_streams import NAMED, STREAM, Server, playing
from tests.openai.serving import CHAT


async def kept(server: Server, key: str, names: list[str]) -> list[str]:
    body = {"conversation_ids": names}
    headers = {"x-api-key": key}
    found = await server.ask("POST", "/v1/streams/lookup", json=body, headers=headers)
    return [entry["conversation_id"] for entry in found.json()]


async def test_the_streams_of_one_client_push_out_no_others() -> None:
    async with playing(forever(), keys=("mine", "theirs"), most=10) as server:
        for name in ("c1", "c2"):
            await server.leave(after=3, name=name, key="mine")
        names = [f"c{number}" for number in range(20)]
        for name in names:
            await server.leave(after=3, name=name, key="theirs")
        assert await kept(server, "mine", names) == ["c1", "c2"]
        assert await kept(server, "theirs", names) == names[-8:]
        for number in range(2, 6):  # until none has more than another one
            await server.leave(after=3, name=f"d{number}", key="mine")
        assert len(await kept(server, "mine", [*names, "d2", "d3", "d4", "d5"])) == 5
        for name in (*names, "d2", "d3", "d4", "d5"):
            for key in ("mine", "theirs"):
                path = f"/v1/stream?conv_id={name}"
                await server.ask("DELETE", path, headers={"x-api-key": key})


async def test_readers_are_counted_until_they_go_and_leave_others_room() -> None:
    async with playing(forever(), readers=9) as server:
        await server.leave(after=3)
        readers = [await server.follow("c1") for _ in range(8)]
        path = "/v1/stream?conv_id=c1"
        assert (await server.ask("GET", path)).status_code == 429
        refused = await server.ask("POST", CHAT, json=STREAM, headers={"x-conversation-id": "c2"})
        assert refused.status_code == 429
        assert server.requests("overloaded") == 1
        for socket, reading in readers:
            socket.leave()
            await reading
        _, reading = await server.follow("c1")
        assert (await server.ask("DELETE", path)).status_code == 204
        await reading


async def test_a_reader_that_does_not_read_holds_a_piece_of_its_stream() -> None:
    replay = ReplayBuffer(capacity=1 << 20)
    replay.append(b"x" * (1 << 20))
    replay.finish()
    sizes = [len(piece) async for piece in replay.read(9)]
    assert sum(sizes) == (1 << 20) - 9
    assert max(sizes) == PIECE_BYTES


def buffers() -> list[ReplayBuffer]:
    return [candidate for candidate in gc.get_objects() if type(candidate) is ReplayBuffer]


async def test_a_stream_that_failed_is_forgotten_without_a_collection() -> None:
    async with playing(fails(RequestError(ErrorKind.UNAVAILABLE, "gone"))) as server:
        refused = await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
        assert refused.status_code == 503
        await server.ended()
        gc.collect()
        gc.disable()
        try:
            others = buffers()  # of tests before
            await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
            await server.ended()
            assert not [
                buffer for buffer in buffers() if not any(buffer is other for other in others)
            ]
        finally:
            gc.enable()
