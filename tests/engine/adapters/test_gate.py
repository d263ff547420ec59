"""Who waits for adapters, and what becomes of requests whose adapters can't be served."""

import asyncio
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deployments.adapter_files import read_adapter_info
from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import GenerationRequest
from deployments.engine.core import EngineCore
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.adapters.slots import AdapterSlots, adapter_bytes
from deployments.engine.forward.adapters.target import Target
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from kv.content import Adapter
from tests.adapters import lora_tensors, make_adapter, save_adapter
from tests.engine.drive import Outcome, engine, random_ids, request, roomy
from tests.models import BY_ROWS, tiny_model


def one_slot(**changes: float) -> EngineLimits:
    return roomy(**{"max_loras": 1, **changes})


LIMITS = one_slot()
PROMPT = random_ids(5)
ROOM_FOR_ONE = 0.03  # MiB, of adapters as they are here


@pytest.fixture
def adapters(tmp_path: Path) -> list[Adapter]:
    model = tiny_model()
    return [make_adapter(tmp_path / str(i), model, seed=i) for i in range(3)]


def asking(name: str, *adapters: Adapter, max_tokens: int = 8) -> GenerationRequest:
    return request(name, PROMPT, max_tokens=max_tokens, adapters=adapters)


def ends(limits_of: dict[str, float], requests: Sequence[GenerationRequest]) -> list[str]:
    """The names of requests in the order in which they end, when all wait at once."""
    with engine(limits=one_slot(**limits_of)) as running:
        return running.order_of_ends(*requests)


def test_what_waits_for_a_slot_lets_others_pass(adapters: list[Adapter]) -> None:
    long, first, none = (
        asking("long", adapters[0], max_tokens=300),
        asking("second", adapters[1], max_tokens=2),
        asking("none", max_tokens=2),
    )
    assert ends({}, [long, first, none]) == ["none", "long", "second"]
    assert ends({"max_loras": 2}, [long, first, none])[-1] == "long"


def test_those_of_a_slot_do_not_keep_it_from_others_that_wait(adapters: list[Adapter]) -> None:
    """A client that goes on asking for its adapter would else have the slot for ever."""
    requests = [
        asking("a1", adapters[0], max_tokens=40),
        asking("b", adapters[1], max_tokens=2),
        asking("a2", adapters[0], max_tokens=40),
    ]
    order: list[str] = []

    async def follow(core: EngineCore, one: GenerationRequest) -> None:
        async for _ in core.stream(one):
            pass
        order.append(one.request_id)

    async def run() -> None:
        with engine(limits=LIMITS) as running:
            running.run(*requests)  # which reads the adapters
            running.gate.close()
            tasks = [asyncio.create_task(follow(running.core, requests[0]))]
            await asyncio.sleep(0)
            running.gate.await_step()
            tasks += [asyncio.create_task(follow(running.core, req)) for req in requests[1:]]
            await asyncio.sleep(0)
            running.gate.open()
            await asyncio.gather(*tasks)

    asyncio.run(run())
    assert order == ["a1", "b", "a2"]


def refusal(adapter: Adapter, **changes: float) -> str:
    with engine(limits=one_slot(**changes)) as running:
        refused, other = running.run_at_once(asking("r", adapter), asking("other"))
        assert refused.finish_reason is FinishReason.ERROR
        assert other.finish_reason is FinishReason.LENGTH
        assert refused.error is not None
        assert refused.error.kind is ErrorKind.INVALID_REQUEST
        assert not running.core.stats().waiting_requests
        return refused.error.message


def test_an_adapter_that_can_not_be_served_is_refused_by_name(
    adapters: list[Adapter], tmp_path: Path
) -> None:
    model = tiny_model()
    gone = replace(adapters[0], path=str(tmp_path / "gone"))
    assert refusal(gone).startswith(f"{gone.path}: adapter_config.json can't be read")
    large = make_adapter(tmp_path / "large", model, rank=17)
    assert refusal(large) == f"{large.path}: it has rank 17, and max_lora_rank is 16"
    assert "has rank 17" not in refusal(large, max_lora_rank=256, lora_cache_mib=0)
    head = make_adapter(tmp_path / "head", model, targets=["lm_head"])
    assert refusal(head) == f"{head.path}: lm_head: such layers take no adapter"
    save_adapter(Path(adapters[1].path), lora_tensors(model, seed=8))
    assert "not those that were asked for" in refusal(adapters[1])


def test_an_adapter_of_other_sizes_is_refused(adapters: list[Adapter], tmp_path: Path) -> None:
    stem = "base_model.model.model.layers.0.self_attn.k_proj"
    tensors = {
        f"{stem}.lora_A.weight": torch.ones(4, 32),
        f"{stem}.lora_B.weight": torch.ones(9, 4),
    }
    path = save_adapter(tmp_path / "other", tensors)
    message = refusal(Adapter(path, read_adapter_info(path).digest, 1.0, name="polite"))
    assert message.startswith("polite: ")  # and not where the operator keeps it
    assert message.endswith("k_proj: made for weights of (9, 32), which are (16, 32)")


def test_ranks_that_add_up_to_more_than_a_slot_has_are_refused(adapters: list[Adapter]) -> None:
    with engine(limits=one_slot(max_lora_rank=8)) as running:
        (outcome,) = running.run(asking("r", *adapters))
    assert outcome.error is not None
    assert outcome.error.kind is ErrorKind.INVALID_REQUEST
    assert outcome.error.message.endswith("together they have rank 12, and max_lora_rank is 8")


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_scale_that_is_no_number_is_refused(adapters: list[Adapter], scale: float) -> None:
    assert "scale" in refusal(replace(adapters[0], scale=scale))


def test_an_engine_without_slots_refuses_adapters(adapters: list[Adapter]) -> None:
    assert refusal(adapters[0], max_loras=0) == "this model takes no adapters: max_loras is 0"


def test_experts_are_refused_by_name(tmp_path: Path) -> None:
    stem = "base_model.model.model.layers.0.mlp.experts.0.gate_proj"
    tensors = {
        f"{stem}.lora_A.weight": torch.ones(4, 32),
        f"{stem}.lora_B.weight": torch.ones(32, 4),
    }
    path = save_adapter(tmp_path / "experts", tensors)
    adapter = Adapter(path, read_adapter_info(path).digest, 1.0)
    with engine("qwen3_moe", limits=LIMITS) as running:
        (outcome,) = running.run(asking("r", adapter))
    assert outcome.error is not None
    assert "experts.0.gate_proj: the layers of experts take no adapter" in outcome.error.message


@pytest.mark.parametrize("architecture", sorted(BY_ROWS))
def test_a_model_that_is_run_row_by_row_takes_no_adapters(architecture: str) -> None:
    with pytest.raises(UnsupportedModelError, match="computed row by row"):
        EngineCore(LoadedModel(tiny_model(architecture)), frozenset(), LIMITS)


def outcomes_without_pages(
    first: GenerationRequest, others: Sequence[GenerationRequest]
) -> list[Outcome]:
    """Returns the outcomes of `first` and of `others`, which come once `first` runs.

    The files of its adapter are gone by then, and it is preempted. The adapter has no place in the
    cache beside another one.
    """

    async def run() -> list[Outcome]:
        limits = one_slot(n_pages=12, lora_cache_mib=ROOM_FOR_ONE)
        with engine(limits=limits) as running:
            running.gate.close()
            tasks = [asyncio.create_task(running.follow(first))]
            await asyncio.sleep(0)
            running.gate.await_step()
            shutil.rmtree(first.content.adapters[0].path)
            tasks += [asyncio.create_task(running.follow(each)) for each in others]
            await asyncio.sleep(0)
            running.gate.open()
            records = await asyncio.gather(*tasks)
            assert running.core.stats().preemptions
            return [record.outcome for record in records]

    return asyncio.run(run())


def token_ids(outcomes: Sequence[Outcome]) -> list[tuple[int, ...]]:
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return [outcome.token_ids for outcome in outcomes]


@pytest.mark.parametrize("priority", [0, -2])
def test_an_adapter_that_is_gone_disturbs_nobody_who_has_it(
    adapters: list[Adapter], priority: int
) -> None:
    """Another one wants its slot, before who has it finds pages again too."""
    one = asking("r", adapters[0], max_tokens=24)
    other = replace(asking("other", adapters[1]), priority=priority)
    urgent = [replace(asking(f"u{i}", max_tokens=48), priority=-1) for i in range(3)]
    with engine(limits=LIMITS) as running:
        expected = running.run(one, other)
    outcomes = outcomes_without_pages(one, (other, *urgent))
    assert token_ids(outcomes[:2]) == token_ids(expected)


def test_who_leaves_while_it_waits_for_a_slot_is_gone(adapters: list[Adapter]) -> None:
    requests = [
        asking("long", adapters[0], max_tokens=40),
        asking("left", adapters[1]),
        asking("last", adapters[2]),
    ]
    with engine(limits=LIMITS) as running:
        assert running.order_of_ends(*requests, aborted="left")[-1] == "last"
        assert running.core.stats().aborted_requests == 1


def test_an_engine_that_stops_ends_those_that_wait_for_a_slot(adapters: list[Adapter]) -> None:
    with engine(limits=LIMITS) as running:
        running.gate.close()
        events = running.core.run([asking(f"r{i}", adapters[i], max_tokens=90) for i in range(2)])
        ends = threading.Thread(target=running.core.shutdown)
        running.gate.listener = ends.start
        running.gate.open()
        last = dict(events)
        ends.join()
    assert [last[i].finish_reason for i in range(2)] == [FinishReason.ERROR] * 2


@pytest.mark.parametrize("architecture", ["llama", "qwen2_moe"])
def test_the_memory_of_slots_is_known_before_they_are_there(architecture: str) -> None:
    model = tiny_model(architecture)
    n_bytes = adapter_bytes(model, n_slots=3, max_rank=8)
    fuse(model)
    assert adapter_bytes(model, n_slots=3, max_rank=8) == n_bytes
    targets = AdapterSlots(model, 3, 8).targets.values()
    assert sum(target.n_bytes for target in targets) == n_bytes


def test_an_adapter_that_finds_no_memory_fails_alone(
    adapters: list[Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(limits=LIMITS) as running:
        loaded = next(iter(running.core.run([asking("r", adapters[0])])))
        assert loaded[1].error is None
        matrices = Target.append

        def full(target: Target, *given: object) -> None:
            raise torch.OutOfMemoryError("the device is full")

        monkeypatch.setattr(Target, "append", full)
        failed, other = running.run_at_once(asking("r", adapters[1]), asking("other"))
        assert failed.error is not None
        assert failed.error.kind is ErrorKind.INTERNAL
        assert other.error is None
        monkeypatch.setattr(Target, "append", matrices)
        assert running.run(asking("r", adapters[1]))[0].error is None
