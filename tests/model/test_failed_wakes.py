"""A wake that fails: who asks is told why at once, and it is tried again where that may help."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from deployments.contract.errors import ErrorKind, Refused
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from tests.checkpoints import save_checkpoint
from tests.engine.loading.gguf.test_served import written
from tests.model.life import Life, ask, ids


@pytest.fixture
def own_checkpoint(tmp_path: Path) -> Path:
    """One that a test may spoil."""
    return save_checkpoint(tmp_path / "own")


def move(folder: Path, name: str) -> Path:
    return folder.rename(folder.with_name(name))


def test_a_model_whose_folder_is_gone_says_so_until_it_is_back(own_checkpoint: Path) -> None:
    async def scenario() -> None:
        life = Life(own_checkpoint)
        async with life.begin(idle_s=60) as sleeper:
            before = ids(await ask(sleeper))
            await sleeper.sleep()
            away = move(own_checkpoint, "away")
            for _ in range(3):
                with pytest.raises(Refused, match=f"{own_checkpoint} is gone") as refused:
                    await ask(sleeper)
                assert refused.value.error.kind is ErrorKind.UNAVAILABLE
                sleeper.check_health()  # a new process would not find it either
                assert sleeper.failure == refused.value.error.message
            life.changed.clear()
            move(away, own_checkpoint.name)
            await life.changed.wait()  # nobody asks for it
            assert ids(await ask(sleeper)) == before
            assert not sleeper.failure

    asyncio.run(scenario())


def test_a_gguf_model_wakes_with_its_file_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = written("llama", tmp_path)
        life = Life(file)
        async with life.begin(idle_s=60) as sleeper:
            before = ids(await ask(sleeper))
            form = life.source.card.weights
            assert form is not None
            assert (form.format, form.family, form.type) == ("gguf", "llama", "Q8_0")
            await sleeper.sleep()
            away = move(file, "away.gguf")
            with pytest.raises(Refused, match=f"the file {file} is gone"):
                await ask(sleeper)
            life.changed.clear()
            move(away, file.name)
            await life.changed.wait()
            assert ids(await ask(sleeper)) == before
            await sleeper.sleep()
            away.write_bytes(file.read_bytes()[:2000])
            away.replace(file)
            with pytest.raises(Refused, match=r"model\.gguf"):
                await ask(sleeper)

    asyncio.run(scenario())


def test_a_wake_that_takes_too_long_needs_another_process(
    own_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        life = Life(own_checkpoint)
        may_start = threading.Event()
        start = life.source.start

        def hang() -> EngineCore:
            may_start.wait()
            return start()

        async with life.begin(wake_timeout_s=0.01) as sleeper:
            await sleeper.sleep()
            monkeypatch.setattr(life.source, "start", hang)
            for _ in range(2):
                with pytest.raises(Refused, match=r"could not be woken: not within 0\.01 s"):
                    await ask(sleeper)
            with pytest.raises(RuntimeError, match=r"not within 0\.01 s"):
                sleeper.check_health()
            monkeypatch.setattr(life.source, "start", lambda: pytest.fail("tried again"))
            may_start.set()

    asyncio.run(scenario())


def test_a_wake_that_fails_is_told_to_all_who_wait_and_to_whoever_checks(
    own_checkpoint: Path,
) -> None:
    async def scenario() -> None:
        async with Life(own_checkpoint).begin() as sleeper:
            await sleeper.sleep()
            (own_checkpoint / "model.safetensors").write_bytes(b"broken")
            waiting = await asyncio.gather(
                *(ask(sleeper) for _ in range(3)), return_exceptions=True
            )
            late = await asyncio.gather(ask(sleeper), return_exceptions=True)
            for refused in (*waiting, *late):
                assert isinstance(refused, Refused)
                assert refused.error.kind is ErrorKind.UNAVAILABLE
                assert "model.safetensors" in refused.error.message
            assert sleeper.users == 0
            with pytest.raises(RuntimeError, match=r"could not be woken.*model\.safetensors"):
                sleeper.check_health()

    asyncio.run(scenario())


def test_files_of_another_model_do_not_wake_as_the_first_one(own_checkpoint: Path) -> None:
    async def scenario() -> None:
        async with Life(own_checkpoint, EngineLimits(n_pages=64)).begin() as sleeper:
            await sleeper.sleep()
            config = json.loads((own_checkpoint / "config.json").read_text())
            config["max_position_embeddings"] = 512
            (own_checkpoint / "config.json").write_text(json.dumps(config))
            with pytest.raises(Refused, match="another model's than before"):
                await ask(sleeper)

    asyncio.run(scenario())


def test_other_weights_do_not_wake_in_the_place_of_the_first_ones(own_checkpoint: Path) -> None:
    async def scenario() -> None:
        async with Life(own_checkpoint).begin() as sleeper:
            await sleeper.sleep()
            save_checkpoint(own_checkpoint, seed=1)
            with pytest.raises(Refused, match="another model's than before"):
                await ask(sleeper)

    asyncio.run(scenario())
