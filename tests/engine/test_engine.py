"""The engine as a library: one prompt or several, at once or as a stream, without Ray."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.engine import InferenceEngine
from deployments.engine.limits import EngineLimits
from deployments.engine.model_card import default_sampling
from deployments.text.grammar.grammar import from_choice
from tests.checkpoints import byte_tokenizer, save_checkpoint

PROMPTS = ["Once upon a time", "Grüße, 世界", "x"]
LIMITS = EngineLimits(n_pages=256, page_size=4, max_running=8, context_length=256)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Iterator[InferenceEngine]:
    with InferenceEngine(str(checkpoint), dtype=torch.float32, limits=LIMITS) as running:
        yield running
    running.core.cache.check()
    assert running.get_stats()["pages_used"] == 0


def ids_of(engine: InferenceEngine, prompt: str, seed: int, n: int) -> list[int]:
    one = engine.request(prompt, seed=seed, max_tokens=n, ignore_eos=True)
    return [token for _, event in engine.core.run([one]) for token in event.token_ids]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_form_gives_the_same_text(engine: InferenceEngine, prompt: str) -> None:
    async def collected() -> str:
        pieces = engine.generate_async(prompt, seed=3, max_tokens=40, ignore_eos=True)
        return "".join([piece async for piece in pieces])

    text = engine.generate(prompt, seed=3, max_tokens=40, ignore_eos=True)
    several = engine.generate(PROMPTS, seed=3, max_tokens=40, ignore_eos=True)
    streamed = engine.generate(prompt, stream=True, seed=3, max_tokens=40, ignore_eos=True)
    assert text == several[PROMPTS.index(prompt)] == "".join(streamed) == asyncio.run(collected())
    expected = byte_tokenizer().decode(ids_of(engine, prompt, 3, 40), skip_special_tokens=True)
    assert text == expected


def test_a_stream_of_several_prompts_names_them(engine: InferenceEngine) -> None:
    texts = [""] * len(PROMPTS)
    for index, text in engine.generate(PROMPTS, stream=True, seed=5, max_tokens=20):
        assert text
        texts[index] += text
    assert texts == engine.generate(PROMPTS, seed=5, max_tokens=20)


def test_a_stream_comes_in_pieces_that_break_no_character(engine: InferenceEngine) -> None:
    pieces = list(engine.generate("bytes", stream=True, seed=1, max_tokens=60, ignore_eos=True))
    assert len(pieces) > 10
    assert all(pieces)


def test_no_prompts_are_no_texts(engine: InferenceEngine) -> None:
    assert engine.generate([]) == []


def test_a_request_of_ids_is_continued_likewise(engine: InferenceEngine) -> None:
    prompt = engine.request("Once", seed=9, max_tokens=12)
    assert engine.generate_with_request(prompt) == engine.generate("Once", seed=9, max_tokens=12)
    streamed = engine.generate_with_request(prompt, stream=True)
    assert "".join(streamed) == engine.generate_with_request(prompt)


def test_without_a_seed_texts_differ(engine: InferenceEngine) -> None:
    texts = {engine.generate("Once", max_tokens=20, ignore_eos=True) for _ in range(3)}
    assert len(texts) == 3


def test_a_grammar_shapes_the_text(engine: InferenceEngine) -> None:
    assert engine.generate("Say", grammar=from_choice(["één", "zwei"], "grammar")) in (
        "één",
        "zwei",
    )


def test_an_end_token_is_no_text(checkpoint: Path) -> None:
    tokenizer = byte_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    with InferenceEngine(model, tokenizer, limits=LIMITS) as engine:
        bias = ((tokenizer.eos_token_id, 1e4),)
        one = GenerationRequest(
            request_id="r", prompt_ids=(1, 2), sampling=SamplingParams(logit_bias=bias)
        )
        assert engine.generate_with_request(one) == ""
        assert engine.get_stats()["tokens_generated"] == 1


def test_leaving_a_stream_ends_its_generation(engine: InferenceEngine) -> None:
    before = engine.get_stats()["tokens_generated"]
    stream = engine.generate("Once", stream=True, max_tokens=None, ignore_eos=True)
    next(stream)
    stream.close()
    several = engine.generate(PROMPTS, stream=True, max_tokens=None, ignore_eos=True)
    next(several)
    several.close()
    engine.generate("after", max_tokens=2)
    stats = engine.get_stats()
    assert stats["pages_used"] == stats["active_requests"] == 0
    assert stats["tokens_generated"] - before < 4 * 200


def test_leaving_an_async_stream_ends_its_generation(engine: InferenceEngine) -> None:
    async def leave() -> None:
        stream = engine.generate_async("Once", max_tokens=None, ignore_eos=True)
        await anext(stream)
        await stream.aclose()

    asyncio.run(leave())
    engine.generate("after", max_tokens=2)
    assert engine.get_stats()["active_requests"] == 0


def test_a_prompt_that_can_not_be_served_raises_and_ends_the_others(
    engine: InferenceEngine,
) -> None:
    with pytest.raises(Refused) as refusal:
        engine.generate(["fine", "x" * 300], max_tokens=None, ignore_eos=True)
    assert refusal.value.error.kind is ErrorKind.CONTEXT_LENGTH
    with pytest.raises(Refused, match="temperature"):
        engine.generate("fine", temperature=-1)
    engine.generate("after", max_tokens=2)
    assert engine.get_stats()["active_requests"] == 0


def test_an_async_prompt_that_can_not_be_served_raises(engine: InferenceEngine) -> None:
    async def refused() -> None:
        async for _ in engine.generate_async("x" * 300):
            pass

    with pytest.raises(Refused):
        asyncio.run(refused())


def test_an_engine_that_was_left_serves_no_more(checkpoint: Path) -> None:
    with InferenceEngine(str(checkpoint), dtype=torch.float32, limits=LIMITS) as engine:
        engine.core.check_health()
        assert len(engine.generate("Once", max_tokens=3, ignore_eos=True)) > 0
    with pytest.raises(Refused) as refusal:
        engine.generate("Once", max_tokens=3)
    assert refusal.value.error.kind is ErrorKind.UNAVAILABLE
    engine.shutdown()


def test_stats_count_what_was_done(checkpoint: Path) -> None:
    with InferenceEngine(str(checkpoint), dtype=torch.float32, limits=LIMITS) as engine:
        engine.generate("Once upon", max_tokens=7, ignore_eos=True)
        stats = engine.get_stats()
    assert (stats["total_requests"], stats["tokens_generated"]) == (1, 7)
    assert (stats["prompt_tokens"], stats["cached_tokens"]) == (9, 0)
    assert (stats["steps"], stats["failed_steps"], stats["pages_total"]) == (7, 0, 256)
    assert stats["prompt_throughput"] > 0
    assert stats["generation_throughput"] > 0


def test_a_model_given_as_an_object_needs_its_tokenizer(checkpoint: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    with pytest.raises(ValueError, match="tokenizer"):
        InferenceEngine(model)


def test_the_card_says_what_the_engine_is(engine: InferenceEngine) -> None:
    tokenizer = byte_tokenizer()
    card = engine.card
    assert (card.context_length, card.page_size) == (256, 4)
    assert card.vocab_size == len(tokenizer)
    assert card.eos_token_ids == (tokenizer.eos_token_id,)
    assert card.sampling == SamplingParams()


def test_sampling_defaults_are_what_the_makers_say_and_else_neutral() -> None:
    assert default_sampling(None) == SamplingParams()
    assert default_sampling(GenerationConfig()) == SamplingParams()
    said = GenerationConfig(do_sample=True, temperature=0.6, top_k=20, top_p=0.95, min_p=0.1)
    assert default_sampling(said) == SamplingParams(
        temperature=0.6, top_k=20, top_p=0.95, min_p=0.1
    )


SCRIPT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"ray", "pydantic", "starlette"}:
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())

from deployments.engine.engine import InferenceEngine

with InferenceEngine(sys.argv[1]) as engine:
    print(len(engine.generate("Once", max_tokens=5, temperature=0, ignore_eos=True)) > 0)
    print(len(engine.generate(["a", "b"], max_tokens=5, seed=1)))
"""


def test_a_plain_script_needs_neither_ray_nor_pydantic_nor_starlette(checkpoint: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(checkpoint)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "2"]
