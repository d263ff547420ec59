"""LLaVA 1.5: every image is resized to one size, and has an id for each patch."""

from dataclasses import dataclass

from deployments.contract.media_rules import Expansion, ImageRules, MediaRules, check_ratio
from deployments.media.families.described import Described, edge_of, fixed_size, image_fields

# Of an image's sides, where the shorter one is resized and the rest then cut off: of a line of one
# pixel the processor would make gigabytes.
MAX_RATIO = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedImageRules(ImageRules):
    """Every image has `n_ids` ids, between `before` and `after`."""

    n_ids: int
    before: str = ""
    after: str = ""
    is_cropped: bool = False

    def expand(self, width: int, height: int) -> Expansion:
        if self.is_cropped:
            check_ratio(width, height, MAX_RATIO)
        return Expansion(f"{self.before}{self.placeholder}{self.after}", (self.n_ids,))


def n_selected(processor: Described) -> int:
    """Ids that the vision tower has beside its patches, less those that the model drops."""
    dropped = int(processor.vision_feature_select_strategy == "default")
    return int(processor.num_additional_image_tokens) - dropped


def llava_rules(processor: Described) -> MediaRules:
    height, width = fixed_size(processor.image_processor)
    patch = processor.patch_size
    n_ids = (height // patch) * (width // patch) + n_selected(processor)
    is_cropped = edge_of(processor.image_processor.size, "shortest_edge") is not None
    return MediaRules(
        images=FixedImageRules(**image_fields(processor), n_ids=n_ids, is_cropped=is_cropped)
    )
