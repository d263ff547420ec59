"""The effect on a chat stream of many texts whose vectors are computed beside it.

`python -m tests.bench.embeddings [model] [texts] [tokens of each]` prints the gaps between the
tokens of the stream, quiet and beside them, in milliseconds.
"""

import asyncio
import sys
import time
from collections.abc import Sequence

import numpy as np

from deployments.contract.outputs import Pooling, PoolParams
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.engine import InferenceEngine

DEMO = "serve_app/demo/model"
STREAM_TOKENS = 400
CONCURRENT = 512  # texts that wait at once


async def gaps(engine: InferenceEngine) -> Sequence[float]:
    """Returns the gaps between tokens of a stream, in milliseconds."""
    ids = engine.request("The sky is").prompt_ids
    greedy = SamplingParams(temperature=0)
    request = GenerationRequest(
        request_id="stream",
        prompt_ids=ids,
        max_tokens=STREAM_TOKENS,
        ignore_eos=True,
        sampling=greedy,
        client="chat",
    )
    events = engine.core.stream(request)
    times = [time.perf_counter() async for event in events if event.token_ids]
    return [1e3 * gap for gap in np.diff(times).tolist()]


async def embed(engine: InferenceEngine, n: int, length: int, ended: asyncio.Event) -> int:
    """How many of `n` texts were answered while the stream ran."""
    room, answered = asyncio.Semaphore(CONCURRENT), 0
    rng = np.random.default_rng(0)

    async def one(index: int) -> None:
        nonlocal answered
        async with room:
            if ended.is_set():
                return
            ids = rng.integers(3, engine.core.vocab_size, length).tolist()
            params = PoolParams(pooling=Pooling.MEAN)
            request = GenerationRequest(
                request_id=f"text {index}",
                prompt_ids=tuple(ids),
                max_tokens=0,
                output=params,
                client="texts",
            )
            async for event in engine.core.stream(request):
                assert event.error is None, event.error
            answered += not ended.is_set()

    await asyncio.gather(*(one(index) for index in range(n)))
    return answered


async def measure(engine: InferenceEngine, n: int, length: int) -> None:
    await gaps(engine)
    quiet = await gaps(engine)
    ended = asyncio.Event()
    texts = asyncio.create_task(embed(engine, n, length, ended))
    begin = time.perf_counter()
    beside = await gaps(engine)
    seconds = time.perf_counter() - begin
    ended.set()
    answered = await texts
    for name, found in (("quiet", quiet), ("beside", beside)):
        p50, p99 = np.percentile(found, (50, 99))
        print(f"{name:7} p50 {p50:7.2f} ms  p99 {p99:7.2f} ms")
    print(f"{answered} texts of {length} tokens in {seconds:.1f} s of the stream")


def main(model: str = DEMO, n: str = "5000", length: str = "200") -> None:
    with InferenceEngine(model) as engine:
        asyncio.run(measure(engine, int(n), int(length)))


if __name__ == "__main__":
    main(*sys.argv[1:])
