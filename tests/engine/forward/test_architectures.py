"""Greedy tokens of every architecture equal those of its own `generate`, however they are cut."""

from functools import cache

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CpmAntConfig,
    Gemma3TextConfig,
    OpenAIGPTConfig,
    PretrainedConfig,
)

from deployments.contract.requests import SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import replace_attention
from tests.engine.drive import Outcome, engine, random_ids, request, roomy
from tests.models import BY_ROWS, CONFIGS, SIZES, STATES, VOCAB, tiny_model

ARCHITECTURES = ["llama", "qwen3", "mistral", "gemma3", "gemma2", "qwen3_moe", "gpt_oss"]
N_NEW = 16
LONG = random_ids(45, seed=1)
PROMPTS = (LONG, LONG[:30] + random_ids(9, seed=2), LONG[:1], random_ids(18, seed=3), LONG[:16])
SAMPLING = SamplingParams(temperature=0, logprobs=2)


@cache
def generated(architecture: str) -> list[tuple[tuple[int, ...], list[float]]]:
    """Tokens and their log-probabilities of each prompt, from transformers alone."""
    model = tiny_model(architecture)
    model.set_attn_implementation("eager")
    found = []
    for prompt in PROMPTS:
        out = model.generate(
            torch.tensor([prompt]),
            max_new_tokens=N_NEW,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        tokens = out.sequences[0, len(prompt) :].tolist()
        logprobs = torch.cat(out.logits).log_softmax(1)
        found.append((tuple(tokens), logprobs[range(N_NEW), tokens].tolist()))
    return found


def check(architecture: str, outcomes: list[Outcome]) -> None:
    for outcome, (tokens, logprobs) in zip(outcomes, generated(architecture), strict=True):
        assert outcome.token_ids == tokens
        reported = [entry.logprob for entry in outcome.logprobs]
        assert reported == pytest.approx(logprobs, abs=2e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_reference_is_no_repetition_of_one_token(architecture: str) -> None:
    assert len({token for tokens, _ in generated(architecture) for token in tokens}) > 10


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("page_size", "max_batch_tokens"), [(1, 5), (4, 9), (16, 512)])
def test_greedy_equals_generate_alone_batched_and_with_prefix_hits(
    architecture: str, page_size: int, max_batch_tokens: int
) -> None:
    sizes = {"page_size": page_size, "max_batch_tokens": max_batch_tokens}
    limits = roomy(n_pages=4096 // page_size, max_running=5, **sizes)
    requests = [
        request(f"r{i}", prompt, SAMPLING, max_tokens=N_NEW) for i, prompt in enumerate(PROMPTS)
    ]
    with engine(architecture, limits=limits) as running:
        check(architecture, running.run_together(*requests))
        again = running.run_together(*requests)
        check(architecture, again)
        for outcome, prompt in zip(again, PROMPTS, strict=True):
            assert outcome.cached_tokens == (len(prompt) - 1) // page_size * page_size
        apart = [
            request("alone", prompt, SAMPLING, max_tokens=N_NEW, cache_salt=str(i))
            for i, prompt in enumerate(PROMPTS)
        ]
        check(architecture, [outcome for req in apart for outcome in running.run(req)])


# Windows that tumble, or that only the mask has; heads that differ by layer; values narrower than
# keys; states.
@pytest.mark.parametrize(
    "architecture",
    [
        *("llama4", "qwen2_moe", "phimoe", "gemma4", "deepseek_v3", "glm_moe_dsa", "falcon"),
        *sorted({*STATES, "minimax"} & CONFIGS.keys()),
        *sorted(
            BY_ROWS - {"recurrent_gemma"}
        ),  # one of a single token begins with states of others
    ],
)
def test_what_layers_attend_to_and_store_is_found_out(architecture: str) -> None:
    requests = [
        request(f"r{i}", prompt, SAMPLING, max_tokens=N_NEW) for i, prompt in enumerate(PROMPTS)
    ]
    with engine(architecture, limits=roomy(max_batch_tokens=9, max_running=5)) as running:
        is_by_rows = running.core.execution.by_rows is not None
        assert is_by_rows is (architecture in BY_ROWS)
        check(architecture, running.run_together(*requests))


def test_frequencies_that_depend_on_length_do_not_depend_on_the_batch() -> None:
    short, long = request("short", LONG[:20]), request("long", random_ids(90))
    with engine("phi3_longrope") as running:
        (alone,) = running.run(short)
        together = running.run_together(short, long)
    assert together[0].token_ids == alone.token_ids


def test_a_context_within_the_original_one_has_the_original_frequencies() -> None:
    model = tiny_model("phi3_longrope")
    model.set_attn_implementation("eager")
    expected = model.generate(torch.tensor([LONG[:20]]), max_new_tokens=N_NEW, do_sample=False)
    with engine("phi3_longrope", limits=roomy(context_length=64)) as running:
        (outcome,) = running.run(request("short", LONG[:20]))
    assert outcome.token_ids == tuple(expected[0, 20:].tolist())


def test_frequencies_are_those_of_the_context_that_pages_allow() -> None:
    """On a GPU memory is measured with the whole context, and pages may then make it shorter."""

    def frequencies(*contexts: int) -> torch.Tensor:
        model = tiny_model("phi3_longrope")
        for context in contexts:
            replace_attention(model, find_decoding(model), context)
        found: torch.Tensor = model.model.rotary_emb.inv_freq
        return found

    for context in (64, 65):
        assert torch.equal(frequencies(256, context), frequencies(context))
    assert not torch.equal(frequencies(64), frequencies(65))


def test_frequencies_of_each_type_of_layers_are_those_of_the_context() -> None:
    short, long = [1.0] * 4, [4.0] * 4  # factors of half a head
    longrope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": short,
                "long_factor": long, "original_max_position_embeddings": 64}  # fmt: skip
    plain = {"rope_type": "default", "rope_theta": 1e4}
    of_layers = {"full_attention": longrope, "sliding_attention": plain}
    config = Gemma3TextConfig(
        **SIZES,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_parameters=of_layers,
    )

    def frequencies(*contexts: int) -> list[float]:
        model = AutoModelForCausalLM.from_config(config)
        for context in contexts:
            replace_attention(model, find_decoding(model), context)
        rotary = model.model.rotary_emb
        fixed = rotary.full_attention_inv_freq.clone()
        for name in of_layers:  # a batch of one short sequence
            rotary(torch.zeros(1), torch.tensor([[0]]), layer_type=name)
        assert torch.equal(rotary.full_attention_inv_freq, fixed)
        found: list[float] = fixed.tolist()
        return found

    for context in (64, 65):
        assert frequencies(256, context) == frequencies(context)
    assert frequencies(64) != frequencies(65)


@pytest.mark.parametrize("architecture", ["diffllama"])
def test_a_model_whose_attention_is_its_own_keeps_its_prefixes(architecture: str) -> None:
    model = tiny_model(architecture)
    with engine(model=model, limits=roomy(max_batch_tokens=9, draft_tokens=3)) as running:
        requests = [
            request(f"r{i}", prompt, SAMPLING, max_tokens=N_NEW) for i, prompt in enumerate(PROMPTS)
        ]
        check(architecture, running.run(*requests))
        again = running.run(*requests)
        check(architecture, again)
        assert again[0].cached_tokens == len(LONG) // 4 * 4


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (OpenAIGPTConfig(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4), "takes no cache"),
        (
            CpmAntConfig(vocab_size=VOCAB, hidden_size=32, num_attention_heads=4, dim_head=8),
            "its cache holds something else than one key a token",
        ),
    ],
)
def test_a_model_that_keeps_its_past_elsewhere_is_refused_before_it_has_pages(
    config: PretrainedConfig, reason: str
) -> None:
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with pytest.raises(UnsupportedModelError, match=reason):
        EngineCore(LoadedModel(model), frozenset(), roomy())
