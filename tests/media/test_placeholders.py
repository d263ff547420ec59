"""The ids that a medium becomes are those that transformers' own processor makes of it."""

import logging
from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image

from deployments.contract.errors import Refused
from deployments.contract.media_rules import MediaKind, MediaRules
from deployments.media.medium import Medium
from deployments.media.placeholders import ExpandedText, expand
from deployments.media.rules import rules_of
from tests.media import processors
from tests.media.processors import SEEING, Processor, build

RATE = 16_000
# Width and height: square, flat, narrow, tiny, of odd sides, just over what a family rounds at.
SIZES = [
    (336, 336),
    (640, 480),
    (480, 640),
    (1024, 300),
    (97, 1201),
    (1, 1),
    (33, 31),
    (673, 671),
    (1600, 1199),
]
BESIDE = ("\n\nA:", "\n", "?\n\n")


def image(width: int, height: int) -> Medium:
    return Medium(kind=MediaKind.IMAGE, data=b"", digest=b"i", width=width, height=height)


def sound(n_samples: int) -> Medium:
    return Medium(kind=MediaKind.AUDIO, data=b"", digest=b"a", n_frames=n_samples, rate=RATE)


def known(processor: Processor) -> MediaRules:
    rules = rules_of(processor)
    assert rules is not None
    return rules


def encoded(processor: Processor, text: str) -> list[int]:
    ids: list[int] = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def ours(processor: Processor, media: Sequence[Medium], marker: str) -> tuple[Sequence[int], int]:
    """The final ids, and how many are not the text's own."""
    text = marker.join(("", *BESIDE[: len(media)]))
    expanded: ExpandedText = expand(text, known(processor), media, "messages")
    ids, ranges = expanded.insert_placeholders(encoded(processor, expanded.text), "messages")
    assert len(ids) - len(encoded(processor, expanded.text)) == expanded.n_more
    return [*ids], sum(found.end - found.first for found in ranges)


def theirs(processor: Processor, sizes: Sequence[tuple[int, int]], marker: str) -> list[int]:
    images = [Image.new("RGB", size) for size in sizes]
    text = marker.join(("", *BESIDE[: len(sizes)]))
    return [int(token_id) for token_id in processor(images=images, text=[text])["input_ids"][0]]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("family", SEEING)
def test_an_image_has_the_ids_that_the_processor_gives_it(family: str) -> None:
    processor = build(SEEING[family])
    rules = known(processor).images
    assert rules is not None
    for size in SIZES:
        if "qwen" in family and max(size) > 200 * min(size):
            continue
        found, n_placeholders = ours(processor, [image(*size)], rules.marker)
        assert found == theirs(processor, [size], rules.marker), size
        assert n_placeholders >= found.count(rules.placeholder_id) > 0


def test_an_image_for_qwen_has_the_lines_of_its_grid() -> None:
    processor = build(SEEING["qwen2_5_vl"])
    rules = known(processor).images
    assert rules is not None
    for size in [(640, 480), (97, 1201), (33, 31)]:
        read = processor.image_processor(images=[Image.new("RGB", size)])
        assert rules.expand(*size).columns == read["image_grid_thw"][0][2] // 2, size


@pytest.mark.parametrize("family", SEEING)
def test_several_images_in_a_prompt_have_them_too(family: str) -> None:
    processor, sizes = build(SEEING[family]), [(640, 480), (97, 201)]
    rules = known(processor).images
    assert rules is not None
    found, _ = ours(processor, [image(*size) for size in sizes], rules.marker)
    assert found == theirs(processor, sizes, rules.marker)


@pytest.mark.parametrize("largest", [False, True])
def test_an_image_for_llama_4_has_the_ids_of_its_best_canvas(largest: bool) -> None:
    processor = build(lambda: processors.llama4(largest=largest))
    sizes = [*SIZES, *((width, 997) for width in range(101, 4000, 293))]
    for size in sizes:
        found, _ = ours(processor, [image(*size)], "<|image|>")
        text = processors.llama4_text(processor, *size) + BESIDE[0]
        assert found == encoded(processor, text), size


@pytest.mark.parametrize("n_samples", [RATE // 10, RATE, 12_345, 12_480, 12_481, 30 * RATE])
def test_a_sound_for_qwen2_audio_has_the_ids_that_the_processor_gives_it(n_samples: int) -> None:
    processor = build(processors.qwen2_audio)
    rules = known(processor).audio
    assert rules is not None
    text = f"{rules.framed}{BESIDE[0]}"
    made = processor(text=[text], audio=[np.zeros(n_samples, np.float32)], sampling_rate=RATE)
    expanded = expand(text, known(processor), [sound(n_samples)], "messages")
    ids, _ = expanded.insert_placeholders(encoded(processor, expanded.text), "messages")
    assert ids == [int(token_id) for token_id in made["input_ids"][0]]


def test_a_sound_for_gemma_3n_has_the_ids_that_the_processor_gives_it() -> None:
    processor = build(processors.gemma3n)
    rules = known(processor).audio
    assert rules is not None
    text = f"{rules.framed}{BESIDE[0]}"
    made = processor(text=[text], audio=[np.zeros(5000, np.float32)])
    expanded = expand(text, known(processor), [sound(5000)], "messages")
    ids, _ = expanded.insert_placeholders(encoded(processor, expanded.text), "messages")
    assert ids == [int(token_id) for token_id in made["input_ids"][0]]


@pytest.mark.parametrize("n_samples", [1, 30 * RATE, 30 * RATE + 1, 100 * RATE])
def test_a_sound_for_voxtral_has_the_ids_of_whole_windows(n_samples: int) -> None:
    """Its processor makes the ids with a package of Mistral's, and the features itself."""
    processor = build(processors.voxtral)
    kept = {"padding": True, "pad_to_multiple_of": 30 * RATE, "truncation": False}
    windows = processor._retrieve_input_features(
        [np.zeros(n_samples, np.float32)],
        3000,
        sampling_rate=RATE,
        return_tensors="pt",
        **kept,
    )
    rules = known(processor).audio
    assert rules is not None
    assert sum(rules.expand(n_samples).runs) == 375 * len(windows)


def test_a_sound_that_the_model_would_cut_off_is_refused_with_the_number() -> None:
    processor = build(processors.qwen2_audio)
    with pytest.raises(Refused, match="takes 30 at most"):
        expand("<|AUDIO|>", known(processor), [sound(31 * RATE)], "messages")


@pytest.mark.parametrize(
    ("family", "marker", "size", "problem"),
    [
        ("qwen3_vl", "<|image_pad|>", (2001, 10), "no side may be more than 200 times the other"),
        ("llava", "<image>", (1, 101), "no side may be more than 100 times the other"),
        ("mistral3", "[IMG]", (1, 20_000), "1 x 20000 pixels, of which this model would see no"),
        ("mistral3", "[IMG]", (20_000, 1), "20000 x 1 pixels, of which this model would see no"),
    ],
)
def test_an_image_that_can_not_be_resized_is_refused(
    family: str, marker: str, size: tuple[int, int], problem: str
) -> None:
    processor = build(SEEING[family])
    with pytest.raises(Refused, match=problem):
        expand(marker, known(processor), [image(*size)], "messages")


@pytest.mark.parametrize(
    ("family", "text"),
    [("llava", "<image><image>"), ("llava", ""), ("gemma3", "<start_of_image><image_soft_token>")],
)
def test_a_text_that_is_written_like_an_image_is_refused(family: str, text: str) -> None:
    processor = build(SEEING[family])

    def prompt() -> None:
        expanded = expand(text, known(processor), [image(9, 9)], "messages")
        expanded.insert_placeholders(encoded(processor, expanded.text), "messages")

    with pytest.raises(Refused, match="messages"):
        prompt()


def test_an_unknown_processor_is_none_that_sees() -> None:
    assert rules_of(object()) is None
