"""Two ranks generate what one process generates, and a dead rank ends the engine."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    MambaConfig,
    PretrainedConfig,
    PreTrainedModel,
    RwkvConfig,
)

from deployments.contract.errors import ErrorKind
from deployments.contract.outputs import ModelTask
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import finish_weights
from deployments.engine.loading.lora import merge_adapters
from deployments.engine.loading.model_tasks import answer_as
from deployments.engine.loading.quantization import quantize
from deployments.engine.parallel.ranks import RanksLostError, shard_range
from deployments.engine.parallel.sharding import check_shardable, load_shard
from tests.adapters import lora_tensors, save_adapter
from tests.effort import tries
from tests.encoders import tiny_embedder
from tests.engine.drive import GREEDY, Outcome, Poison, engine, random_ids, request, roomy
from tests.engine.parallel.two_ranks import Follower, join_group, start_follower, two_rank_engine
from tests.engine.scheduler.repeating import repeating
from tests.engine.scheduler.test_async_launcher import counted
from tests.families import tiny
from tests.models import CONFIGS, forgetful, tiny_model

SEEDED = SamplingParams(temperature=1.5, top_p=0.95, seed=11, logprobs=2)
SHARED = random_ids(21, seed=1)
PROMPTS = (SHARED, SHARED[:17] + random_ids(3, seed=2), random_ids(9, seed=3), random_ids(2))
TOLERANCE = 1e-3  # of logits that are sums over ranks


@pytest.fixture(scope="module")
def follower() -> Iterator[Follower]:
    with start_follower() as process:
        yield process


@pytest.fixture
def disposable() -> Iterator[Follower]:
    """A follower that the test may kill."""
    with start_follower() as process:
        yield process


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return save(tiny_model(), tmp_path)


def save(model: PreTrainedModel, path: Path) -> Path:
    model.save_pretrained(path)
    return path


def requests() -> list[GenerationRequest]:
    return [
        request(f"{sampling.seed} {i}", prompt, sampling, max_tokens=20 - i)
        for sampling in (replace(GREEDY, logprobs=2), SEEDED)
        for i, prompt in enumerate(PROMPTS)
    ]


def run_unsharded(model: PreTrainedModel) -> list[Outcome]:
    with engine(model=model) as running:
        return running.run(*requests())


def check_same(outcomes: list[Outcome], expected: list[Outcome]) -> None:
    for outcome, other in zip(outcomes, expected, strict=True):
        assert outcome.token_ids == other.token_ids
        assert outcome.finish_reason is other.finish_reason
        ours = [entry.logprob for entry in outcome.logprobs]
        assert ours == pytest.approx([entry.logprob for entry in other.logprobs], abs=TOLERANCE)


PARALLEL = (
    *("llama", "qwen3", "mistral", "gemma2", "gemma3", "qwen3_moe", "phi3_longrope"),
    "deepseek_v3",
    *tries((), ("llama4", "glm_moe_dsa")),
)


@pytest.mark.parametrize("architecture", PARALLEL)
def test_two_ranks_generate_what_one_generates(
    architecture: str, follower: Follower, tmp_path: Path
) -> None:
    path = save(tiny_model(architecture), tmp_path)
    with two_rank_engine(follower, path) as running:
        outcomes = running.run(*requests())
        running.check_idle()
    check_same(outcomes, run_unsharded(tiny_model(architecture)))


LIMITS = {
    "chunked": roomy(max_batch_tokens=16),
    "preempted": roomy(n_pages=22),
    "one row at a time": roomy(max_running=1),
}


@pytest.mark.parametrize("model_type", ["olmo2", "glm4"])
def test_what_ranks_gather_is_whole(model_type: str, follower: Follower, tmp_path: Path) -> None:
    """Heads that are normed together, and gates that are joined in the checkpoint."""
    path = save(tiny.tiny_model(model_type), tmp_path)
    with two_rank_engine(follower, path) as running:
        outcomes = running.run(*requests())
    check_same(outcomes, run_unsharded(tiny.tiny_model(model_type)))


@pytest.mark.parametrize("model_type", ["deepseek_v2", "minicpm3"])
def test_ranks_share_the_heads_of_latents(
    model_type: str, follower: Follower, tmp_path: Path
) -> None:
    path = save(tiny.tiny_model(model_type), tmp_path)
    with two_rank_engine(follower, path) as running:
        outcomes = running.run(*requests())
        layout = running.core.cache.shape.layout
        heads = running.model.model.layers[0].self_attn.q_b_proj.weight.shape[0] / (2 * 8)
    check_same(outcomes, run_unsharded(tiny.tiny_model(model_type)))
    assert {shape.token_numbers for shape in layout} == {16 + 8}
    assert heads == tiny.HEADS / 2


@pytest.mark.parametrize("is_async", [True, *tries((), (False,))])
@pytest.mark.parametrize("name", LIMITS)
def test_chunks_preemption_and_steps_launched_ahead_do_not_change_the_output(
    name: str, is_async: bool, follower: Follower, llama: Path
) -> None:
    limits = replace(LIMITS[name], async_scheduling=is_async)
    with two_rank_engine(follower, llama, limits) as running:
        ahead = counted(running)
        outcomes = running.run_at_once(*requests())
        running.check_idle()
        stats = running.core.stats()
    check_same(outcomes, run_unsharded(tiny_model()))
    assert stats.cached_tokens > 0
    assert (stats.preemptions > 0) == (name == "preempted")
    assert (len(ahead) >= 10) == is_async


@pytest.mark.parametrize("model_type", ["qwen3_next", *tries((), ("granitemoehybrid",))])
def test_ranks_keep_the_same_states(model_type: str, follower: Follower, tmp_path: Path) -> None:
    path = save(tiny.tiny_model(model_type), tmp_path)
    limits = roomy(n_pages=22, max_batch_tokens=16, async_scheduling=True)
    with two_rank_engine(follower, path, limits) as running:
        ahead = counted(running)
        outcomes = running.run_at_once(*requests())
        running.check_idle()
        stats = running.core.stats()
        assert running.core.cache.shape.has_states
    check_same(outcomes, run_unsharded(tiny.tiny_model(model_type)))
    assert stats.preemptions > 0
    assert len(ahead) >= 10


def test_an_encoder_is_not_shared(disposable: Follower, llama: Path) -> None:
    with join_group(disposable, llama) as ranks:
        model = answer_as(LoadedModel(tiny_embedder("eurobert")), ModelTask.EMBED)
        with pytest.raises(UnsupportedModelError, match="can't share an encoder"):
            EngineCore(model, frozenset(), roomy(), ranks=ranks)


def test_drafts_are_checked_by_all_ranks(follower: Follower, tmp_path: Path) -> None:
    path = save(forgetful(), tmp_path)
    with two_rank_engine(follower, path, roomy(draft_tokens=5)) as running:
        repeating("greedy").check(running.run(*repeating("greedy").requests))
        running.check_idle()
        assert running.core.stats().accepted_tokens > 0


def test_a_step_of_any_length_reaches_all_ranks(follower: Follower, llama: Path) -> None:
    long = request("long", random_ids(480), max_tokens=16)
    with two_rank_engine(follower, llama) as running:
        outcome = running.run(long)[0]
    with engine() as unsharded:
        assert outcome.token_ids == unsharded.run(long)[0].token_ids


@pytest.mark.parametrize("tied", [False, True])
def test_odd_sizes_are_sharded(tied: bool, follower: Follower, tmp_path: Path) -> None:
    config = LlamaConfig.from_dict(CONFIGS["llama"]().to_dict())
    config.vocab_size, config.intermediate_size, config.tie_word_embeddings = 131, 63, tied
    config.attention_bias = config.mlp_bias = True
    model = LlamaForCausalLM(config).eval()
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias)
    path = save(model, tmp_path)
    with two_rank_engine(follower, path) as running:
        outcomes = running.run(*requests())
    check_same(outcomes, run_unsharded(model))


def test_adapters_are_merged_before_the_cut(
    follower: Follower, llama: Path, tmp_path: Path
) -> None:
    model = tiny_model()
    adapters = [(save_adapter(tmp_path / "adapter", lora_tensors(model)), 2.0)]
    plain = run_unsharded(tiny_model())
    merge_adapters(LoadedModel(model), adapters)
    with two_rank_engine(follower, llama, adapters=adapters) as running:
        outcomes = running.run(*requests())
    check_same(outcomes, run_unsharded(model))
    assert [outcome.token_ids for outcome in outcomes] != [outcome.token_ids for outcome in plain]


@pytest.mark.parametrize("architecture", ["llama", *tries((), ("qwen3_moe",))])
def test_weights_are_rounded_before_the_cut(
    architecture: str, follower: Follower, tmp_path: Path
) -> None:
    path = save(tiny_model(architecture), tmp_path)
    with two_rank_engine(follower, path, quantization="int8") as running:
        outcomes = running.run(*requests())
    model = tiny_model(architecture)
    quantize(model, "int8")
    finish_weights(model, "cpu")
    check_same(outcomes, run_unsharded(model))


def test_each_rank_has_its_share_of_weights_and_pages(follower: Follower, llama: Path) -> None:
    unsharded = tiny_model()
    with two_rank_engine(follower, llama) as running:
        shard, cache = running.model.state_dict(), running.core.cache
    whole = unsharded.model.layers[0].self_attn
    projections = sum(
        linear.weight.numel() for linear in (whole.q_proj, whole.k_proj, whole.v_proj)
    )
    assert shard["model.layers.0.self_attn.qkv_proj.weight"].numel() * 2 == projections
    linears = [module for module in running.model.modules() if type(module) is nn.Linear]
    assert all(
        linear.weight.shape == (linear.out_features, linear.in_features) for linear in linears
    )
    assert cache.shape.layout[0].kv_heads * 2 == unsharded.config.num_key_value_heads


def test_a_rank_that_dies_in_mid_step_ends_the_engine(disposable: Follower, llama: Path) -> None:
    with two_rank_engine(disposable, llama) as running:

        def in_mid_step() -> Iterator[GenerationRequest]:
            running.gate.close()
            yield from requests()
            running.gate.await_step()
            disposable.kill()
            running.gate.open()

        events = dict(running.core.run(in_mid_step()))
        check_ended(running.core, [event.error for event in events.values()])


def test_a_rank_that_died_while_idle_ends_the_engine_at_the_next_step(
    disposable: Follower, llama: Path
) -> None:
    with two_rank_engine(disposable, llama) as running:
        running.run(request("first", PROMPTS[0]))
        disposable.kill()
        check_ended(running.core, [running.run(request("second", PROMPTS[1]))[0].error])
        check_ended(running.core, [running.run(request("third", PROMPTS[2]))[0].error])


def test_a_failure_of_rank_0_in_mid_step_ends_the_engine(disposable: Follower, llama: Path) -> None:
    with two_rank_engine(disposable, llama) as running:
        Poison(running.model, 7).raises()
        check_ended(running.core, [running.run(request("poisoned", (7, 7)))[0].error])


def test_a_failure_of_rank_0_in_a_step_launched_ahead_ends_the_engine(
    disposable: Follower, llama: Path
) -> None:
    one = request("poisoned", PROMPTS[0])
    with engine() as unsharded:
        first = unsharded.run(one)[0].token_ids[0]
    assert first not in one.prompt_ids
    with two_rank_engine(disposable, llama, roomy(async_scheduling=True)) as running:
        Poison(running.model, first).raises()
        check_ended(running.core, [running.run(one)[0].error])


def check_ended(core: EngineCore, errors: list[object]) -> None:
    kinds = {getattr(error, "kind", None) for error in errors}
    assert kinds == {ErrorKind.UNAVAILABLE}
    with pytest.raises(RuntimeError):
        core.check_health()


def test_a_rank_marked_as_lost_fails_the_health_check(follower: Follower, llama: Path) -> None:
    with join_group(follower, llama) as ranks:
        model = load_shard(str(llama), ranks, dtype=torch.float32)
        core = EngineCore(model, frozenset(), roomy(), ranks=ranks)
        core.check_health()
        ranks.mark_lost("it was seen to end")
        with pytest.raises(RuntimeError, match="it was seen to end"):
            core.check_health()
        core.shutdown()


def test_rank_0_is_told_why_another_one_could_not_load(disposable: Follower, llama: Path) -> None:
    with join_group(disposable, llama / "nowhere") as ranks:
        model = load_shard(str(llama), ranks)
        with pytest.raises(RanksLostError, match=r"rank 1 failed: .*nowhere"):
            EngineCore(model, frozenset(), EngineLimits(), ranks=ranks)


@pytest.mark.parametrize("size", [3, 4])
def test_ranks_that_cannot_share_the_heads_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=rf"{size} ranks .* 4 attention heads and 2 key-value"):
        check_shardable(CONFIGS["llama"](), size)


@pytest.mark.parametrize("plan", [None, {}, {"embed_tokens": "embedding_rowwise"}])
def test_a_model_whose_plan_splits_no_layers_is_refused_by_name(
    plan: dict[str, str] | None,
) -> None:
    config = CONFIGS["gpt_oss"]()
    config.base_model_tp_plan = plan  # of the installed version: some have one for the embedding
    with pytest.raises(UnsupportedModelError, match="gpt_oss has no tensor-parallel plan"):
        check_shardable(config, 2)


@pytest.mark.parametrize("config", [MambaConfig(), Mamba2Config(), RwkvConfig()])
def test_a_model_without_attention_heads_is_refused_by_name(config: PretrainedConfig) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{config.model_type} has no tensor-parallel"):
        check_shardable(config, 2)


def test_a_plan_without_a_number_of_heads_is_refused_by_name() -> None:
    config = MambaConfig()
    config.base_model_tp_plan = {"layers.*.mixer.in_proj": "colwise"}
    with pytest.raises(UnsupportedModelError, match=r"ranks can't share mamba: .*num_attention_"):
        check_shardable(config, 2)


@pytest.mark.parametrize(("n", "size"), [(8, 2), (7, 2), (5, 4), (1, 3)])
def test_shards_are_consecutive_and_complete(n: int, size: int) -> None:
    shards = [shard_range(n, rank, size) for rank in range(size)]
    indices = [i for start, length in shards for i in range(start, start + length)]
    assert indices == list(range(n))
