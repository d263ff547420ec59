"""Processors of transformers over a tokenizer made here, by the names of their families.

Some need torchvision or num2words before they can be built, though not for what is asked of them
here.
"""

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

Processor = Any
NEWLINE = "\u010a"  # as byte-level tokenizers write it
BOXES = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
MODELS = "transformers.models"


def tokenizer(*tokens: str, **named: str) -> Any:
    """Byte-level, with the tokens as special ones. As in real ones two line ends are one token."""
    vocab = {
        character: index
        for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    vocab[NEWLINE * 2] = len(vocab)
    made = Tokenizer(models.BPE(vocab=vocab, merges=[(NEWLINE, NEWLINE)]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(tokens))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", extra_special_tokens=named
    )


@contextmanager
def anywhere() -> Iterator[None]:
    """Processors can be built without the packages that they need elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        mixin = transformers.processing_utils.ProcessorMixin
        patch.setattr(mixin, "check_argument_for_proper_class", lambda *_: None)
        yield


def llava(**size: object) -> Processor:
    size = size or {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
    return transformers.LlavaProcessor(
        transformers.CLIPImageProcessorPil(**size),
        tokenizer(image_token="<image>"),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def llava_next() -> Processor:
    edge = 336
    return transformers.LlavaNextProcessor(
        transformers.LlavaNextImageProcessorPil(
            size={"shortest_edge": edge}, crop_size={"height": edge, "width": edge}
        ),
        tokenizer(image_token="<image>"),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def llava_onevision() -> Processor:
    sides = range(384, 2305, 384)
    return transformers.LlavaOnevisionProcessor(
        transformers.LlavaOnevisionImageProcessorPil(
            image_grid_pinpoints=[[height, width] for height in sides for width in sides]
        ),
        tokenizer(image_token="<image>", video_token="<video>"),
        None,
        num_image_tokens=729,
        vision_feature_select_strategy="full",
    )


def qwen(name: str, patch: int, size: dict[str, int] | None = None) -> Processor:
    return getattr(transformers, name)(
        transformers.Qwen2VLImageProcessorPil(patch_size=patch, size=size),
        tokenizer(
            "<|vision_start|>",
            "<|vision_end|>",
            image_token="<|image_pad|>",
            video_token="<|video_pad|>",
        ),
        None,
    )


def gemma3(side: int = 96, n_ids: int = 256) -> Processor:
    return transformers.Gemma3Processor(
        transformers.Gemma3ImageProcessorPil(size={"height": side, "width": side}),
        tokenizer(
            boi_token="<start_of_image>",
            eoi_token="<end_of_image>",
            image_token="<image_soft_token>",
        ),
        image_seq_length=n_ids,
    )


def gemma3n(side: int = 96, **lengths: int) -> Processor:
    """Its ids of texts come first, then those of images, then those of sounds, as in its models."""
    return transformers.Gemma3nProcessor(
        transformers.Gemma3nAudioFeatureExtractor(),
        transformers.CLIPImageProcessorPil(
            size={"height": side, "width": side}, do_center_crop=False, default_to_square=True
        ),
        tokenizer(
            boi_token="<start_of_image>",
            boa_token="<start_of_audio>",
            eoi_token="<end_of_image>",
            image_token="<image_soft_token>",
            eoa_token="<end_of_audio>",
            audio_token="<audio_soft_token>",
        ),
        **lengths,
    )


def gemma4(n_ids: int = 280) -> Processor:
    return transformers.Gemma4Processor(
        None,
        transformers.Gemma4ImageProcessorPil(max_soft_tokens=n_ids),
        tokenizer(
            boi_token="<|image>",
            eoi_token="<image|>",
            image_token="<|image|>",
            boa_token="<|audio>",
            eoa_token="<audio|>",
            audio_token="<|audio|>",
        ),
        None,
    )


def idefics3() -> Processor:
    return transformers.Idefics3Processor(
        transformers.Idefics3ImageProcessorPil(),
        tokenizer("<image>", "<fake_token_around_image>", "<global-img>", *BOXES),
    )


def smolvlm(side: int = 512, n_frames: int = 4, n_ids: int = 64) -> Processor:
    """`n_frames` are the most of them in a line."""
    module = importlib.import_module(f"{MODELS}.smolvlm.processing_smolvlm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "num2words", str)
        return module.SmolVLMProcessor(
            transformers.SmolVLMImageProcessorPil(
                size={"longest_edge": n_frames * side}, max_image_size={"longest_edge": side}
            ),
            tokenizer("<image>", "<fake_token_around_image>", "<global-img>", *BOXES),
            None,
            image_seq_len=n_ids,
        )


def pixtral(merge: int) -> Processor:
    """Its module imports a function of torchvision's image processor that Pillow's has, too."""
    pil = importlib.import_module(f"{MODELS}.pixtral.image_processing_pil_pixtral")
    stand_in = ModuleType("image_processing_pixtral")
    stand_in.get_resize_output_image_size = pil.get_resize_output_image_size  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, f"{MODELS}.pixtral.image_processing_pixtral", stand_in)
        module = importlib.import_module(f"{MODELS}.pixtral.processing_pixtral")
    return module.PixtralProcessor(
        transformers.PixtralImageProcessorPil(size={"longest_edge": 640}),
        tokenizer("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        patch_size=16,
        spatial_merge_size=merge,
    )


def internvl() -> Processor:
    return transformers.InternVLProcessor(
        transformers.GotOcr2ImageProcessorPil(size={"height": 64, "width": 64}),
        tokenizer(
            start_image_token="<img>",
            end_image_token="</img>",
            context_image_token="<IMG_CONTEXT>",
            video_token="<video>",
        ),
        None,
    )


@cache
def llama4_functions() -> dict[str, Any]:
    """Returns the functions with which its image processor computes a canvas.

    They are read from the file: the module imports torchvision.
    """
    folder = Path(importlib.import_module(f"{MODELS}.llama4").__file__ or "").parent
    tree = ast.parse((folder / "image_processing_llama4.py").read_text())
    wanted = {"get_factors", "find_supported_resolutions", "get_best_fit"}
    tree.body = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted
    ]
    for node in tree.body:
        node.decorator_list = []  # type: ignore[attr-defined]
    names: dict[str, Any] = {"torch": torch, "SizeDict": object}
    exec("from collections import defaultdict", names)
    exec(compile(tree, "llama4", "exec"), names)
    return names


def llama4(
    *, largest: bool = False, image_processor: Processor = None, patch_size: int = 14
) -> Processor:
    image_processor = image_processor or SimpleNamespace(
        size={"height": 336, "width": 336},
        max_patches=16,
        resize_to_max_canvas=largest,
        model_input_names=["pixel_values"],
    )
    tokens = (
        "<|image_start|>",
        "<|image_end|>",
        "<|image|>",
        "<|patch|>",
        "<|tile_x_separator|>",
        "<|tile_y_separator|>",
    )
    return transformers.Llama4Processor(image_processor, tokenizer(*tokens), patch_size=patch_size)


def llama4_canvas(image_processor: Processor, width: int, height: int) -> tuple[int, int]:
    """Rows and columns of tiles."""
    functions, side = llama4_functions(), SimpleNamespace(**image_processor.size)
    canvases = functions["find_supported_resolutions"](image_processor.max_patches, side)
    canvas = functions["get_best_fit"](
        (height, width), torch.tensor(canvases), image_processor.resize_to_max_canvas
    )
    return int(canvas[0]) // side.height, int(canvas[1]) // side.width


def llama4_text(processor: Processor, width: int, height: int) -> str:
    side = SimpleNamespace(**processor.image_processor.size)
    pixels = torch.zeros(1, 3, side.height, side.width)
    ratio = llama4_canvas(processor.image_processor, width, height)
    inputs = {"pixel_values": pixels, "aspect_ratios": [ratio]}
    text: str = processor.replace_image_token(inputs, 0)
    return text


def qwen2_audio(seconds: int = 30) -> Processor:
    return transformers.Qwen2AudioProcessor(
        transformers.WhisperFeatureExtractor(feature_size=128, chunk_length=seconds),
        tokenizer("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"),
    )


def voxtral(seconds: int = 30) -> Processor:
    """Makes a processor whose sounds are the 25th token."""
    made = tokenizer("[AUDIO]")
    made.convert_ids_to_tokens = lambda token_id: "[AUDIO]"
    extractor = transformers.WhisperFeatureExtractor(128, chunk_length=seconds)
    return transformers.VoxtralProcessor(extractor, made)


SEEING: dict[str, Callable[[], Processor]] = {
    "llava": llava,
    "llava_siglip": lambda: llava(size={"height": 224, "width": 224}, do_center_crop=False),
    "llava_next": llava_next,
    "llava_onevision": llava_onevision,
    "qwen2_5_vl": lambda: qwen("Qwen2_5_VLProcessor", 14),
    "qwen3_vl": lambda: qwen("Qwen3VLProcessor", 16),
    "gemma3": gemma3,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "idefics3": idefics3,
    "smolvlm": smolvlm,
    "pixtral": lambda: pixtral(1),
    "mistral3": lambda: pixtral(2),
    "internvl": internvl,
}


def build(make: Callable[[], Processor]) -> Processor:
    with anywhere():
        return make()
