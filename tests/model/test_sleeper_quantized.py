"""A quantized model sleeps and wakes as others do."""

import asyncio
from pathlib import Path

from tests.checkpoints import save_checkpoint
from tests.model.life import SAMPLED, Life, ask, ids


def test_quantized_weights_that_were_read_again_answer_as_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Life(save_checkpoint(tmp_path), quantization="int8").begin() as sleeper:
            before = ids(await ask(sleeper, SAMPLED))
            assert await sleeper.sleep()
            assert ids(await ask(sleeper, SAMPLED)) == before

    asyncio.run(scenario())
