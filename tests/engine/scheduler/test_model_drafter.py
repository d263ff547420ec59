"""A draft model changes how many steps a sequence takes, and nothing of what comes of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count

import pytest
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel, Qwen3Config

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.build import find_execution
from deployments.engine.cache_sizing import cache_shape
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.draft_check import check_draft
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.text.grammar.grammar import from_regex
from deployments.text.stream import TextDelta, TextStream, fold
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.effort import tries
from tests.engine import laws, test_laws
from tests.engine.drive import (
    GREEDY,
    Engine,
    Faults,
    ascii_text,
    ascii_tokenizer,
    engine,
    random_ids,
    request,
    roomy,
)
from tests.engine.scheduler.repeating import every_repeating, repeating
from tests.engine.scheduler.test_drafter import THINKING
from tests.engine.workload import Workload
from tests.models import CONFIGS, SIZES, VOCAB, alike, forgetful, from_config, tiny_model
from tests.text.cards import card

FREE = SamplingParams(temperature=2.5, seed=1)
TOKENIZER = TextTokenizer(card(Tokenizer.from_str(ascii_tokenizer())))


DRAFTING = {"draft_tokens": 5, "draft_min": 1}


def drafting(
    draft: PreTrainedModel | None = None, **changes: float | None
) -> AbstractContextManager[Engine]:
    workload = replace(repeating("greedy"), draft=lambda: draft or alike(forgetful()))
    return workload.engine(**DRAFTING, **changes)


def drafted(
    name: str = "greedy",
    draft: Callable[[], PreTrainedModel] = lambda: alike(forgetful()),
    architecture: str = "llama",
) -> Workload:
    return replace(
        repeating(name, architecture).on(),
        draft=draft,
        drafting=DRAFTING,
        few_pages=[{"n_pages": 36, "max_batch_tokens": 16}],
    )


class Reads:
    """How many tokens a draft model has read, pass by pass."""

    def __init__(self, draft: PreTrainedModel) -> None:
        self.sizes: list[int] = []
        draft.get_input_embeddings().register_forward_pre_hook(self._note)

    def _note(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.sizes.append(args[0].numel())


@every_repeating
def test_each_accepted_token_saves_a_step(name: str) -> None:
    laws.each_accepted_token_saves_a_step(drafted(name))


@every_repeating
@pytest.mark.parametrize("law", [laws.preempted_is_undisturbed, laws.a_failed_step_changes_nothing])
def test_law_where_tokens_are_drafted(law: laws.Law, name: str) -> None:
    law(drafted(name).on(**DRAFTING))


@pytest.mark.parametrize("name", test_laws.SAMPLINGS)
def test_whatever_is_asked_for_drafted_is_plain(name: str) -> None:
    laws.drafted_is_plain(
        replace(
            test_laws.workload(name).on(),
            draft=lambda: alike(tiny_model()),
            drafting={"draft_tokens": 3, "draft_min": 1},
            n_accepted=1,
        )
    )


@pytest.mark.parametrize("sampling", [GREEDY, FREE, replace(FREE, top_k=9, frequency_penalty=0.5)])
def test_a_model_that_says_the_same_is_right_at_any_temperature(sampling: SamplingParams) -> None:
    one = request("a", random_ids(9), sampling, max_tokens=61)
    with engine(draft=tiny_model(), limits=roomy(draft_tokens=5, draft_min=1)) as running:
        running.run(one)
        stats = running.core.stats()
    assert stats.accepted_tokens == stats.drafted_tokens
    assert stats.steps == 1 + 60 / 6


@pytest.mark.parametrize(
    "one",
    [
        replace(repeating("cut").requests[0], thinking=THINKING),
        request(
            "words", random_ids(5), FREE, max_tokens=40, grammar=from_regex("([a-f]{3}-)*", "")
        ),
        request("scored", random_ids(30), replace(FREE, logprobs=2), prompt_logprobs=1),
        request("stopped", random_ids(30), FREE, max_tokens=90, stop_token_ids=range(8)),
    ],
    ids=lambda one: one.request_id,
)
def test_what_else_is_read_of_tokens_is_plain(one: GenerationRequest) -> None:
    laws.drafted_is_plain(replace(drafted(draft=forgetful), requests=[one], reference=None))


def stopped_at(running: Engine, one: GenerationRequest, stop: str) -> TextDelta:
    """The answer as the ingress reads it, which leaves the events at the stop string."""
    stream, deltas = TextStream(TOKENIZER, stops=[stop]), list[TextDelta]()
    for _, event in running.core.run([one]):
        deltas.append(stream.push(event))
        if stream.is_complete:
            break
    return fold(deltas)


def test_a_stop_string_ends_it_at_the_same_token() -> None:
    """Wherever it ends within a draft, of which each step commits six tokens."""
    one = request("a", random_ids(30), replace(FREE, logprobs=1), max_tokens=90)
    with engine(model=forgetful()) as running:
        text = ascii_text(running.run(one)[0].token_ids)
        stops = [text[end - 3 : end] for end in range(40, 46)]
        expected = [stopped_at(running, one, stop) for stop in stops]
    with drafting(forgetful()) as running:
        found = [stopped_at(running, one, stop) for stop in stops]
    for ours, theirs, stop in zip(found, expected, stops, strict=True):
        assert ours.accepted_tokens > 0
        assert ours.stop == theirs.stop == stop
        assert ours.text == theirs.text == text[: text.index(stop)]
        assert ours.token_ids == theirs.token_ids
        assert ours.output_tokens == theirs.output_tokens == len(ours.text) + len(stop)
        assert [each.offset for each in ours.logprobs] == [*range(len(ours.text))]


def test_a_draft_that_fails_costs_no_step() -> None:
    draft, step = alike(forgetful()), count()
    faults, workload = Faults(draft), drafted(draft=lambda: draft).on(**DRAFTING)
    with workload.engine() as running:
        faults.failing = lambda ids: next(step) == 20
        workload.check(running.run_at_once(*workload.requests))
        assert running.core.stats().failed_steps == 0
    assert next(step) == 21  # it is left alone for a while


def test_what_it_has_read_of_a_prefix_is_found_with_its_pages() -> None:
    draft = forgetful()
    reads = Reads(draft)
    prompt = random_ids(101, seed=1)
    with drafting(draft) as running:
        reads.sizes.clear()
        [first] = running.run(request("a", prompt, max_tokens=8))
        assert reads.sizes[0] == 102
        reads.sizes.clear()
        [again] = running.run(request("b", prompt, max_tokens=8))
        assert reads.sizes[0] == 1
    assert first.token_ids == again.token_ids
    assert 0 < again.accepted_tokens == again.drafted_tokens


def test_long_prompts_are_read_in_parts() -> None:
    draft = alike(forgetful())
    reads = Reads(draft)
    with drafting(draft, max_batch_tokens=16, max_running=2) as running:
        reads.sizes.clear()
        running.run(request("a", random_ids(101, seed=1), max_tokens=30))
        assert running.core.stats().accepted_tokens > 0
    assert reads.sizes[:6] == [16] * 6
    assert max(reads.sizes) == 16


@pytest.mark.parametrize(
    "architecture", ["gemma3", "deepseek_v3", *tries((), ("mistral", "phi3_longrope"))]
)
def test_layers_of_any_kind_draft(architecture: str) -> None:
    laws.drafted_is_plain(
        drafted("greedy", lambda: alike(forgetful(architecture), 0.02), architecture)
    )


OTHERS = {
    "fewer tokens": Qwen3Config(**{**SIZES, "vocab_size": VOCAB - 40, "num_hidden_layers": 1}),
    "more tokens, wider heads": LlamaConfig(
        **{**SIZES, "vocab_size": VOCAB + 9, "head_dim": 16, "num_key_value_heads": 1}
    ),
    "a shorter context": LlamaConfig(**{**SIZES, "max_position_embeddings": 40}),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("architecture", ["llama", *tries((), ("gemma2", "diffllama"))])
def test_it_need_not_be_of_the_same_shape(name: str, architecture: str) -> None:
    workload = drafted("greedy", lambda: from_config(OTHERS[name]), architecture)
    laws.drafted_is_plain(replace(workload, n_drafted=1, n_accepted=0))


def with_layers(architecture: str, n: int) -> PreTrainedModel:
    config = CONFIGS[architecture]()
    config.num_hidden_layers = n
    return from_config(config)


# So many layers that those without a window are in several groups. The first model is run row by
# row, or the second one, which drafts.
MIXED = {
    "twice": ("diffllama", 3, "mistral", 1),
    "windows": ("mistral", 3, "diffllama", 2),
}


@pytest.mark.parametrize("name", MIXED)
def test_row_by_row_all_layers_have_the_pages_of_their_groups(name: str) -> None:
    architecture, n_layers, other, n_others = MIXED[name]
    longer_than_windows = [
        request(f"r{i}", random_ids(40 + i, seed=i), sampling, max_tokens=60)
        for i, sampling in enumerate((GREEDY, FREE))
    ]
    mixed = Workload(
        requests=longer_than_windows,
        model=lambda: with_layers(architecture, n_layers),
        draft=lambda: with_layers(other, n_others),
        drafting=DRAFTING,
        n_drafted=1,
    )
    laws.drafted_is_plain(mixed)
    with mixed.engine(**DRAFTING) as running:
        assert sum(group.window is None for group in running.core.cache.groups) > 1


def test_it_drafts_beside_layers_that_keep_a_state() -> None:
    workload = drafted("greedy", forgetful, "qwen3_next")
    laws.drafted_is_plain(replace(workload, n_drafted=1, n_accepted=0))


def test_what_it_is_not_sure_of_is_not_drafted() -> None:
    with drafting(draft_p_min=1.1) as running:
        running.run(request("a", random_ids(9), FREE, max_tokens=30))
        assert running.core.stats().drafted_tokens == 0


def test_a_draft_that_is_too_short_is_not_used() -> None:
    one = request("a", random_ids(9), max_tokens=30)
    with engine(draft=tiny_model(), limits=roomy(draft_tokens=5, draft_min=5)) as running:
        running.run(one)
        stats = running.core.stats()
    # Behind the prompt's step 29 tokens are left, of which steps with drafts take 6.
    assert stats.drafted_tokens == 4 * 5
    assert stats.steps == 1 + 4 + 5


def test_its_pages_count() -> None:
    model, draft = LoadedModel(tiny_model()), LoadedModel(tiny_model())
    execution, limits = find_execution(model), roomy(n_pages=None, kv_gib=2**-14)
    alone = cache_shape(model, execution, limits)
    both = cache_shape(model, execution, limits, draft=check_draft(draft, model))
    assert both.n_pages == alone.n_pages // 2


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (lambda: tiny_model().bfloat16(), "dtype"),
        (lambda: tiny_model("mamba2"), "state"),
    ],
)
def test_what_can_not_draft_is_refused(draft: Callable[[], PreTrainedModel], reason: str) -> None:
    limits = roomy(draft_tokens=2)
    with (
        pytest.raises(UnsupportedModelError, match=reason),
        engine(draft=draft(), limits=limits),
    ):
        pass


def test_a_draft_model_that_is_to_draft_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="draft_tokens"), engine(draft=tiny_model()):
        pass
