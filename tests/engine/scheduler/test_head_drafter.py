"""A draft head changes how many steps a sequence takes, and nothing of what comes of it. It reads
what the model computes in the same steps, and stores it in the same pages."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from deployments.contract.outputs import Pooling, PoolParams
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.build import find_execution
from deployments.engine.cache_sizing import cache_shape
from deployments.engine.draft_runner import HeadRunner
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward import linear
from deployments.engine.forward.draft_heads import recorded
from deployments.engine.forward.draft_heads.headed import HeadParts
from deployments.engine.forward.forward import Forward, make_forward
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.loading.draft_check import DraftHead, check_draft
from deployments.engine.loading.draft_heads.head_config import read_head_config
from deployments.engine.loading.draft_heads.head_files import LoadedHead, made_head
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import replace_attention
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.tasks.mailbox import NullMailbox
from deployments.engine.tasks.task import Task, make_task
from deployments.text.grammar.grammar import from_regex
from kv.arrays import IntArray
from kv.cache import KVCache
from tests.adapters import make_adapter
from tests.effort import tries
from tests.engine import laws
from tests.engine.drive import engine, random_ids, request, roomy
from tests.engine.scheduler.repeating import PROMPTS
from tests.engine.workload import Workload
from tests.heads import (
    HIDDEN,
    VOCAB,
    PlainHead,
    as_llama,
    bigram,
    head_tensors,
    knowing_head,
    random_head,
)
from tests.models import tiny_model

# So flat that n-grams hardly ever come again: the head drafts.
FREE = SamplingParams(temperature=2.5, seed=1, logprobs=1)
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0),
    "cool": SamplingParams(temperature=0.7, seed=3),
    "warm": SamplingParams(temperature=1, seed=4, top_k=20, frequency_penalty=0.3),
    "free": FREE,
}
DRAFTING = {"draft_tokens": 5, "draft_min": 1}
WORDS = from_regex("([a-f]{3}-)*", "")


def drafted(
    sampling: SamplingParams,
    model: Callable[[], object] = bigram,
    head: Callable[[], LoadedHead] = lambda: knowing_head(bigram()),
    **changes: object,
) -> Workload:
    plain = Workload(
        requests=[
            request(f"r{i}", prompt, sampling, max_tokens=50 - i)
            for i, prompt in enumerate((*PROMPTS, random_ids(2, seed=5)))
        ],
        model=model,
        few_pages=[{"n_pages": 26, "max_batch_tokens": 16}],
        failing=(8, 11, 14),
    )
    plain = replace(plain, **changes)  # type: ignore[arg-type]
    return replace(plain.on(), draft=head, drafting=DRAFTING)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_drafted_is_plain(name: str) -> None:
    laws.drafted_is_plain(replace(drafted(SAMPLINGS[name]), n_accepted=4))


@pytest.mark.parametrize(
    "law",
    [
        *(laws.batched_is_alone, laws.chunked_is_whole, laws.a_hit_is_no_hit),
        *(laws.preempted_is_undisturbed, laws.failed_over_is_undisturbed),
        laws.a_failed_step_changes_nothing,
    ],
)
def test_law_where_a_head_drafts(law: laws.Law) -> None:
    law(drafted(FREE).on(**DRAFTING))


def test_steps_are_launched_ahead_while_it_drafts_nothing() -> None:
    """Nothing is drafted by measure before some plain steps were timed."""
    laws.launched_ahead_is_in_turns(drafted(FREE).on(draft_tokens=5))


@pytest.mark.parametrize("has_own", [True, False])
def test_a_head_that_knows_is_right_at_any_temperature(has_own: bool) -> None:
    """It may have no embeddings and no last matrix, but read those of the model."""
    one = request("a", random_ids(9), FREE, max_tokens=61)
    head = knowing_head(bigram(), has_own=has_own)
    with engine(model=bigram(), draft=head, limits=roomy(**DRAFTING)) as running:
        [outcome] = running.run(one)
        stats = running.core.stats()
    assert stats.accepted_tokens == stats.drafted_tokens == outcome.accepted_tokens
    assert stats.steps == 1 + 60 / 6
    assert stats.drafts == 10
    assert stats.accepted_by_position == [10] * 5


def test_a_head_that_is_always_wrong_changes_nothing_but_time() -> None:
    one = request("a", random_ids(9), FREE, max_tokens=40)
    with engine() as running:
        expected = running.run(one)[0].token_ids
    never = min({*range(128)} - {*expected})
    tensors = head_tensors(as_llama(draft_vocab_size=1), "embed_tokens")
    head = random_head(tensors=tensors | {"d2t": torch.tensor([never])}, draft_vocab_size=1)
    with engine(draft=head, limits=roomy(**DRAFTING)) as running:
        assert running.run(one)[0].token_ids == expected
        stats = running.core.stats()
    assert stats.accepted_tokens == 0
    assert stats.drafted_tokens > 100
    assert stats.steps == 40


@pytest.mark.parametrize(
    "one",
    [
        request("words", random_ids(5), FREE, max_tokens=40, grammar=WORDS),
        request("scored", random_ids(30), replace(FREE, logprobs=2), prompt_logprobs=1),
        request("stopped", random_ids(30), FREE, max_tokens=60, stop_token_ids=range(8)),
        request("of one token", (7,), FREE),
    ],
    ids=lambda one: one.request_id,
)
def test_what_else_is_read_of_tokens_is_plain(one: GenerationRequest) -> None:
    laws.drafted_is_plain(drafted(FREE, requests=[one], n_drafted=1))


@pytest.mark.parametrize(
    "architecture", ["gemma3", "qwen3_next", *tries((), ("deepseek_v3", "gpt_oss", "gemma4"))]
)
def test_it_drafts_for_layers_of_any_kind(architecture: str) -> None:
    requests = [request(f"{n}", random_ids(n), FREE, max_tokens=20) for n in (30, 7)]
    model = partial(tiny_model, architecture)
    workload = drafted(FREE, model, random_head, requests=requests, tolerance=1e-3)
    laws.drafted_is_plain(replace(workload, n_drafted=1))


def test_it_drafts_for_rows_with_adapters(tmp_path: Path) -> None:
    path = make_adapter(tmp_path / "a", bigram(), seed=1, rank=4)
    requests = [
        request("plain", random_ids(9), FREE, max_tokens=30),
        request("adapted", random_ids(9), FREE, max_tokens=30, adapters=[path]),
    ]
    workload = drafted(FREE, requests=requests, limits=roomy(max_loras=1), n_drafted=2)
    first, second = workload.undisturbed
    assert first.token_ids != second.token_ids
    laws.drafted_is_plain(workload)


def test_it_drafts_beside_rows_that_want_vectors() -> None:
    wanted = replace(
        request("vector", random_ids(9), max_tokens=0), output=PoolParams(pooling=Pooling.LAST)
    )
    both = [wanted, request("text", random_ids(12), FREE, max_tokens=30)]
    laws.drafted_is_plain(drafted(FREE, requests=both))


def steps_of(
    total: Sequence[int] | IntArray, new: Sequence[int], table: IntArray, ids: Tensor
) -> StepInputs:
    """Each row has so many tokens of `ids` [rows, tokens], of which the last `new` ones are
    computed. Slots are numbers of rows."""
    total_len, new_len = np.array(total), np.array(new)
    spans = [np.arange(end - n, end) for end, n in zip(total, new, strict=True)]
    return StepInputs(
        token_ids=np.concatenate([ids[i, span].numpy() for i, span in enumerate(spans)]),
        positions=np.concatenate(spans),
        total_len=total_len,
        new_len=new_len,
        page_table=table[None, : len(total)],
        logit_indices=new_len.cumsum() - 1,
        stale_tails=np.empty((0, 3), dtype=np.int64),
        head_slots=np.arange(len(total)),
    )


@torch.inference_mode()
def test_what_it_stores_goes_by_the_prefix_alone() -> None:
    """Rows are cut into chunks, and verified with drafts that are wrong. A third row begins behind
    pages of the first one, where the state before it is not known. What the head says of each is
    what it says of the sequence computed at once."""
    config, model = as_llama(norm_output=True, draft_vocab_size=40), LoadedModel(tiny_model())
    tensors = head_tensors(config, "embed_tokens")
    plain = PlainHead(tensors, config, model.model)
    head = random_head(tensors=tensors, norm_output=True, draft_vocab_size=40)
    checked = check_draft(head, model)
    assert isinstance(checked, DraftHead)
    ids = torch.tensor([random_ids(20, seed=i) for i in (1, 2, 1)])
    ids[2, 8:] = ids[1, 8:]
    lengths, n_found = (17, 17, 18), (0, 0, 8)
    expected = [
        first_guesses(plain, model, row[:n], found)
        for row, n, found in zip(ids, lengths, n_found, strict=True)
    ]
    forward, parts, _ = headed(model, checked)
    table = np.array([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [0, 1, 10, 11, 12]])
    wrong = ids.clone()
    wrong[:, 15:] = 3
    forward.logits(steps_of((9, 2), (9, 2), table, ids))
    forward.logits(steps_of((10, 14), (1, 12), table, ids))
    forward.logits(steps_of((18, 15), (8, 1), table, wrong))  # of the first row 15 tokens count
    # This one is launched ahead: the host does not know the first row's token.
    ahead = steps_of((16, 16, 17), (1, 1, 9), table, ids)
    sampled, ahead.token_ids[0] = torch.tensor([int(ids[0, 15])]), 0
    forward.logits(replace(ahead, sampled_at=np.array([0]), sampled_ids=sampled))
    newest = steps_of(lengths, (1, 1, 1), table, ids)
    states = parts.carried.before(newest.head_slots, newest.total_len - 1)
    for n in range(2):
        logits, states = parts.forward.guess(newest, states)
        for row in range(3):
            torch.testing.assert_close(logits[row], expected[row][n], rtol=1e-3, atol=1e-3)
        ids[torch.arange(3), torch.tensor(newest.total_len)] = 9
        newest = steps_of(newest.total_len + 1, (1, 1, 1), table, ids)


def headed(model: LoadedModel, head: DraftHead) -> tuple[Forward, HeadParts, KVCache]:
    limits = roomy(n_pages=16, draft_tokens=3, max_running=3)
    execution = find_execution(model)
    cache = KVCache(
        cache_shape(model, execution, limits, draft=head), dtype=model.dtype, device=model.device
    )
    parts = head.parts(model, cache.storage, limits)
    replace_attention(model.model, execution, cache.shape.max_tokens)
    own = make_forward(model.model, execution, cache.storage.part(0, len(execution.layout)))
    return parts.around(own), parts, cache


@pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
@pytest.mark.parametrize(
    "options", [{}, {"norm_before_residual": True, "norm_output": True, "draft_vocab_size": 40}]
)
@torch.inference_mode()
def test_passes_in_one_call_are_single_passes(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say the same, and a head stores the same of a step, bit for bit."""
    model = LoadedModel(tiny_model().bfloat16())
    tensors = head_tensors(as_llama(**options), "embed_tokens")
    config = read_head_config(as_llama(**options))
    head = check_draft(made_head(config, tensors, torch.bfloat16), model)
    assert isinstance(head, DraftHead)
    monkeypatch.setattr(linear, "has_native_bf16", lambda: False)  # so small ones are oneDNN's
    head.prepare(64)
    samplings = SamplingParams(temperature=0), SamplingParams(temperature=0.7, seed=3)
    ids, found = torch.tensor([random_ids(12, seed=i) for i in (1, 2)]), list[list[Tensor]]()
    for is_recorded in (True, False):
        forward, parts, cache = headed(model, head)
        tasks = [task_of(f"{i}", ids[i], sampling) for i, sampling in enumerate(samplings)]
        for task in tasks:
            assert cache.allocate(task.id, [], task.n_tokens, spare=0)
            assert cache.extend(task.id, task.n_tokens + 3)
            parts.carried.take_slot(task.id)
        table = cache.table.page_table([task.id for task in tasks])[0]
        for ends, n_new in (((8, 6), (8, 6)), ((11, 9), (3, 3)), ((11, 11), (1, 2))):
            forward.logits(steps_of(ends, n_new, table, ids))
        runner = HeadRunner(parts.forward, parts.carried, cache, default_pipeline(), VOCAB)
        said = runner.guess(tasks, 3)
        assert (said is not None) is is_recorded
        tokens = torch.tensor(one_by_one(runner, tasks, 3) if said is None else said)
        found.append([tokens, parts.carried.states, *cache.storage.k, *cache.storage.v])
        monkeypatch.setattr(recorded, "TEAM", None)
    assert all(map(torch.equal, *found))


def task_of(name: str, ids: Tensor, sampling: SamplingParams) -> Task:
    asked = request(name, ids.tolist(), sampling)
    return make_task(name, asked, NullMailbox(), frozenset(), len(ids) + 8)


def one_by_one(runner: HeadRunner, tasks: Sequence[Task], n: int) -> list[list[int]]:
    said = list[Sequence[int]]()
    for i in range(n):
        ends = np.array([task.n_tokens for task in tasks]) + i
        said.append(
            runner.say(tasks, runner.compute(tasks, ends - 1, ends), i, needs_probs=False).token_ids
        )
        for task, token_id in zip(tasks, said[-1], strict=True):
            task.tokens[task.n_tokens + i] = token_id
    return [[*of_task] for of_task in zip(*said, strict=True)]


def first_guesses(plain: PlainHead, model: LoadedModel, ids: Tensor, n_found: int) -> list[Tensor]:
    """Logits behind the newest token, and behind token 9 after it. In the place of the state before
    the first token that was not found stand zeros: it is not known."""
    hidden = model.model(ids[None], output_hidden_states=True).hidden_states
    before = plain.join([hidden[i][0] for i in (2, 1, 0)])
    states = torch.cat([torch.zeros(1, HIDDEN), before[:-1]])
    states[n_found] = 0
    logits, own = plain(ids, states)
    following = torch.cat([ids, torch.tensor([9])])
    return [logits[-1], plain(following, torch.cat([states, own[-1:]]))[0][-1]]


def test_its_pages_count() -> None:
    model = LoadedModel(tiny_model())
    execution, limits = find_execution(model), roomy(n_pages=None, kv_gib=2**-14)
    alone = cache_shape(model, execution, limits)
    both = cache_shape(model, execution, limits, draft=check_draft(random_head(), model))
    assert len(both.layout) == len(alone.layout) + 1
    assert both.n_pages < alone.n_pages


REFUSED: dict[str, tuple[Callable[[], LoadedHead], str]] = {
    "states of size 24": (lambda: random_head(target_hidden_size=24), "llama"),
    "made for 512 tokens": (lambda: random_head(vocab_size=512), "llama"),
    r"layers \[1, 2, 7\] of the model": (
        lambda: random_head(eagle_aux_hidden_state_layer_ids=[1, 2, 7]),
        "llama",
    ),
    "row by row": (random_head, "diffllama"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_head_of_another_model_is_refused(reason: str) -> None:
    head, architecture = REFUSED[reason]
    with (
        pytest.raises(UnsupportedModelError, match=reason),
        engine(architecture, draft=head(), limits=roomy(**DRAFTING)),
    ):
        pass
