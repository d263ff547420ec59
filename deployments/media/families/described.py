"""Reads the attributes of a Hugging Face processor, which has no common interface for them."""

from typing import Any, TypedDict

Described = Any  # a processor: each family's has attributes of its own


class KindFields(TypedDict):
    """The fields of `KindRules`."""

    marker: str
    placeholder: str
    placeholder_id: int
    framed: str


class UnknownProcessorError(ValueError):
    """The sizes of a processor are not known from its attributes."""


def image_fields(processor: Described, framed: str = "") -> KindFields:
    """Returns the fields of a family whose template writes the placeholder itself."""
    token: str = processor.image_token
    return kind_fields(token, token, processor.image_token_id, framed)


def kind_fields(marker: str, placeholder: str, placeholder_id: int, framed: str = "") -> KindFields:
    return {
        "marker": marker,
        "placeholder": placeholder,
        "placeholder_id": placeholder_id,
        "framed": framed or marker,
    }


def fixed_size(image_processor: Described) -> tuple[int, int]:
    """The height and width that every image has in the end. Raises UnknownProcessorError."""
    crop, size = getattr(image_processor, "crop_size", None), image_processor.size
    if getattr(image_processor, "do_center_crop", None) and crop:
        return crop["height"], crop["width"]
    if edge_of(size, "height"):
        return size["height"], size["width"]
    if getattr(image_processor, "do_pad", None) and edge_of(size, "shortest_edge"):
        return size["shortest_edge"], size["shortest_edge"]
    raise UnknownProcessorError("its images keep their proportions")


def edge_of(size: Described, name: str) -> int | None:
    """A field of a processor's `size`, where it has one."""
    return dict(size).get(name)
