"""A draft head reads and stores what steps of its model compute, and says what comes next."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.build import find_execution
from deployments.engine.cache_sizing import cache_shape
from deployments.engine.draft_runner import HeadRunner
from deployments.engine.forward import linear
from deployments.engine.forward.draft_heads import recorded
from deployments.engine.forward.draft_heads.headed import HeadParts
from deployments.engine.forward.forward import Forward, make_forward
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.loading.draft_check import check_draft
from deployments.engine.loading.draft_heads.draft_head import DraftHead, LoadedHead
from deployments.engine.loading.draft_heads.head_config import read_head_config
from deployments.engine.loading.draft_heads.head_files import made_head
from deployments.engine.loading.draft_heads.mtp_files import made_mtp
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import replace_attention
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.tasks.mailbox import NullMailbox
from deployments.engine.tasks.task import Task, make_task
from kv.arrays import IntArray
from kv.cache import KVCache
from tests.engine.drive import random_ids, request, roomy
from tests.heads import HIDDEN, VOCAB, PlainHead, as_llama, head_tensors, random_head
from tests.models import tiny_model
from tests.mtp_heads import CONFIGS_WITH_HEADS, PlainMtp, model_with_head, mtp_tensors


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


def with_plain(kind: str) -> tuple[LoadedModel, LoadedHead, PlainHead | PlainMtp]:
    """A model without states, its head, and what that computes in plain torch."""
    if kind == "eagle":
        config, model = as_llama(norm_output=True, draft_vocab_size=40), tiny_model()
        tensors = head_tensors(config, "embed_tokens")
        head = random_head(tensors=tensors, norm_output=True, draft_vocab_size=40)
        return LoadedModel(model), head, PlainHead(tensors, config, model)
    model = model_with_head(kind, has_states=False)
    tensors = mtp_tensors(model, kind)
    made = made_mtp(LoadedModel(model), tensors)
    return LoadedModel(model), made, PlainMtp(tensors, model, kind)


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["eagle", *CONFIGS_WITH_HEADS])
def test_what_it_stores_goes_by_the_prefix_alone(kind: str) -> None:
    """Rows are cut into chunks, and verified with drafts that are wrong. A third row begins behind
    pages of the first one, where the state before it is not known. What the head says of each is
    what it says of the sequence computed at once."""
    model, head, plain = with_plain(kind)
    checked = check_draft(head, model)
    assert isinstance(checked, DraftHead)
    ids = torch.tensor([random_ids(20, seed=i) for i in (1, 2, 1)])
    ids[2, 8:] = ids[1, 8:]
    lengths, n_found = (17, 17, 18), (0, 0, 8)
    expected = [
        first_guesses(plain, model, row[:n], found)
        for row, n, found in zip(ids, lengths, n_found, strict=True)
    ]
    checked.prepare(64)
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


def first_guesses(
    plain: PlainHead | PlainMtp, model: LoadedModel, ids: Tensor, n_found: int
) -> list[Tensor]:
    """Logits behind the newest token, and behind token 9 after it. In the place of the state before
    the first token that was not found stand zeros: it is not known."""
    hidden = model.model(ids[None], output_hidden_states=True).hidden_states
    before = plain.states(hidden)
    states = torch.cat([torch.zeros(1, HIDDEN), before[:-1]])
    states[n_found] = 0
    logits, own = plain(ids, states)
    following = torch.cat([ids, torch.tensor([9])])
    return [logits[-1], plain(following, torch.cat([states, own[-1:]]))[0][-1]]
