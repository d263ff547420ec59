"""Models that see or hear: what transformers says of media, however they are batched, cut and
cached."""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from PIL import Image
from torch import Tensor

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import MediumFile
from deployments.engine.loading.media.media_models import split_media
from deployments.engine.media.encoder import LARGEST_SIDE
from tests.effort import tries
from tests.engine import laws
from tests.engine.drive import Engine, Outcome, roomy
from tests.engine.media.seeing import (
    Shown,
    language_model,
    medium,
    picture,
    seeing,
    seeing_engine,
    shown,
)
from tests.engine.media.tiny_families import FAMILIES
from tests.engine.workload import Limits, Workload, salted

# Of these the check tries every law; of the rare ones none, and of the others one that has most of
# what can go wrong.
TYPICAL = frozenset({"llava", "qwen3_vl"})
RARE = frozenset(
    {
        *("gemma3n", "idefics3", "llama4", "llava_next", "llava_onevision"),
        *("qwen2_vl", "smolvlm", "voxtral"),
    }
)


def families(checked: frozenset[str]) -> pytest.MarkDecorator:
    rest = [
        pytest.param(family, marks=pytest.mark.exhaustive)
        for family in sorted({*FAMILIES} - checked)
    ]
    return pytest.mark.parametrize("name", [*sorted(checked), *rest])


typical_families = families(TYPICAL)
most_families = families(frozenset(FAMILIES) - RARE)
# What is shown, by a seed and a size. A text ends each: transformers counts on from the three
# positions of a prompt's last token, and Qwen's models from the longer side of an image.
PROMPTS = (
    ("What is this? <image> Say it.", ((1, 40, 30),)),
    ("<image> and <image>.", ((2, 40, 30), (3, 50, 20))),
    ("No image at all.", ()),
    ("What is this? <image> It is", ((4, 40, 30),)),
)


def prompts(name: str) -> Sequence[tuple[str, tuple[Shown, ...]]]:
    """OneVision's processor shows less of images where there are several. Here each is as if it
    were alone."""
    made = [
        (text, tuple(shown(name, *arguments) for arguments in media)) for text, media in PROMPTS
    ]
    if name == "llava_onevision":
        return [(text.replace("<image> and", "And"), images[:1]) for text, images in made]
    return made


@cache
def workload(name: str) -> Workload:
    asked = prompts(name)
    return Workload(
        requests=[seeing(name).request("r", text, media) for text, media in asked],
        reference=lambda: [greedy(seeing(name).expected(*prompt)) for prompt in asked],
        model=partial(language_model, name),
        come=Engine.run_at_once,
        chunks=[fitting(name, 5), *tries((), (fitting(name, 16),))],
        is_apart_in_chunks=True,
        cuts=(5,),
        ahead=fitting(name, 8),
        drafting={"draft_tokens": 4},
    )


def greedy(tokens: tuple[int, ...]) -> Outcome:
    return Outcome(tokens, (), FinishReason.LENGTH)


def fitting(name: str, max_batch_tokens: int) -> Limits:
    """Steps of so many tokens, or of as many as the family's images need."""
    least = FAMILIES[name].whole + 3
    return {"max_running": 4, "max_batch_tokens": max(least, max_batch_tokens)}


def growing(name: str) -> Workload:
    """Two with the same tokens and nothing to share have room for their prompts alone."""
    longest = max(workload(name).requests, key=lambda req: len(req.prompt_ids))
    n = 12
    limits: Limits = {"n_pages": 2 * (len(longest.prompt_ids) // 4 + 1) + 2}
    # Whose windows give pages back, that only a longer answer needs.
    if (
        n_pages := {"gemma3": 56, "gemma3n": 56, "gemma4": 170, "llama4": 80}.get(name)
    ) is not None:
        n, limits = 60, {**fitting(name, 24), "n_pages": n_pages}
    both = [salted(longest, salt) for salt in "ab"]
    # Not transformers': the id of an image may be in a long answer, and Gemma 4 reads none there.
    return replace(
        workload(name),
        requests=[replace(req, max_tokens=n) for req in both],
        reference=None,
        few_pages=[limits],
    )


@typical_families
def test_other_pixels_have_other_answers(name: str) -> None:
    one = seeing(name)
    answers = {one.expected("What is this? <image>.", (shown(name, seed),)) for seed in range(4)}
    assert len(answers) > 1


@typical_families
@pytest.mark.parametrize(
    "law",
    [
        laws.alone_is_as_the_reference_says,
        laws.batched_is_alone,
        laws.a_hit_is_no_hit,
        laws.failed_over_is_undisturbed,
        laws.launched_ahead_is_in_turns,
        laws.drafted_is_plain,
    ],
)
def test_law(law: laws.Law, name: str) -> None:
    law(workload(name))


@most_families
def test_chunked_is_whole(name: str) -> None:
    laws.chunked_is_whole(workload(name))


@typical_families
def test_preempted_is_undisturbed(name: str) -> None:
    laws.preempted_is_undisturbed(growing(name))


@typical_families
def test_an_image_is_encoded_once(name: str) -> None:
    """Not again for a request that shares no pages with the first one."""
    n_images = len({file.data for req in workload(name).requests for file in req.media})
    with workload(name).engine() as running:
        for requests in (workload(name).requests, workload(name).apart()):
            workload(name).check(running.run(req)[0] for req in requests)
            assert running.core.stats().media_encoded == n_images


@typical_families
def test_the_same_ids_with_other_pixels_share_no_page_of_the_image(name: str) -> None:
    one = seeing(name)
    text = "<image> What is this?"
    with seeing_engine(name) as running:
        first = running.run(one.request("first", text, (shown(name, 1),)))[0]
        second = running.run(one.request("second", text, (shown(name, 4),)))[0]
    assert second.cached_tokens < 4  # what stands before the image has no full page
    assert first.token_ids == one.expected(text, (shown(name, 1),))
    assert second.token_ids == one.expected(text, (shown(name, 4),))


def test_a_file_that_can_t_be_decoded_fails_its_request_alone() -> None:
    good = seeing().request("good", *prompts("llava")[0])
    bad = seeing().request("bad", *prompts("llava")[3])
    bad = replace(bad, media=(MediumFile(kind=bad.media[0].kind, data=b"no image"),))
    with seeing_engine() as running:
        one, other = running.run_together(bad, good)
    assert one.error is not None
    assert one.error.kind is ErrorKind.INVALID_REQUEST
    assert "an image can't be decoded" in one.error.message
    assert other.token_ids == workload("llava").undisturbed[0].token_ids


@typical_families
def test_the_largest_medium_that_there_is_has_vectors(name: str) -> None:
    """Encoding it shows what a GPU's memory has room for."""
    one = seeing(name)
    encoder = split_media(copy.deepcopy(one.whole), one.processor).media
    assert encoder is not None
    vectors = encoder.encode_largest()
    if one.rules.images is None:
        assert len(vectors) > 0
        return
    largest = Image.new("RGB", (LARGEST_SIDE, LARGEST_SIDE))
    _, content = one.ids("<image>", [medium(largest)])
    [found] = content.media
    assert 0 < len(vectors) <= found.end - found.first


def test_an_image_that_no_step_has_room_for_is_refused_with_the_numbers() -> None:
    with seeing_engine("gemma3", roomy(max_running=4, max_batch_tokens=18)) as running:
        outcome = running.run(seeing("gemma3").request("one", *prompts("gemma3")[0]))[0]
    assert outcome.error is not None
    assert outcome.error.kind is ErrorKind.INVALID_REQUEST
    assert "16 tokens is computed in one step, which has room for 15" in outcome.error.message


def test_a_step_out_of_memory_ends_the_request_whose_image_can_t_be_cut() -> None:
    one = seeing("gemma3")
    with seeing_engine("gemma3", roomy(max_running=4, max_batch_tokens=64)) as running:
        embed = running.model.get_input_embeddings()
        handle = embed.register_forward_pre_hook(out_of_memory)
        failed = running.run(one.request("one", *prompts("gemma3")[0]))[0]
        handle.remove()
        again = running.run(one.request("again", *prompts("gemma3")[0]))[0]
    assert failed.error is not None
    assert failed.error.kind is ErrorKind.OUT_OF_MEMORY
    assert again.token_ids == workload("gemma3").undisturbed[0].token_ids


def out_of_memory(_: object, inputs: tuple[Tensor, ...]) -> None:
    """Raises an OutOfMemoryError in any step that has a whole image."""
    if inputs[0].numel() >= FAMILIES["gemma3"].whole:
        raise torch.OutOfMemoryError("too many tokens")


def test_placeholders_without_files_are_refused() -> None:
    one = replace(seeing().request("one", *prompts("llava")[0]), media=())
    with seeing_engine() as running:
        assert running.run(one)[0].error is not None


def test_who_leaves_while_an_image_is_decoded_leaves_nothing() -> None:
    async def leave(running: Engine) -> None:
        stream = running.core.stream(seeing().request("left", *prompts("llava")[0], max_tokens=400))
        await anext(stream)
        await stream.aclose()

    with seeing_engine() as running:
        asyncio.run(leave(running))
        workload("llava").check(running.run_together(*workload("llava").requests))


def test_images_of_many_wait_for_those_that_have_room_for_their_vectors() -> None:
    text = "<image> and <image>."
    all_shown = [(picture(seed), picture(seed + 1)) for seed in range(0, 20, 2)]
    one, limits = seeing(), roomy(max_running=10, max_batch_tokens=20)
    with seeing_engine(limits=limits) as running:
        outcomes = running.run_together(
            *(one.request(f"r{n}", text, images) for n, images in enumerate(all_shown))
        )
    expected = [one.expected(text, images) for images in all_shown]
    assert [outcome.token_ids for outcome in outcomes] == expected
