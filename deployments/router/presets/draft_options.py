"""The options of speculative decoding, by llama-server's names and ours."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from deployments.router.presets.option_types import Model
from deployments.router.presets.strict_options import Ini, Unset
from deployments.router.presets.values import hub_id

MAX_DRAFT_TOKENS = 64
OWN_HEAD = ("mtp", "draft-mtp")  # here, and in llama-server

DraftModel = Annotated[
    Model | None,
    Ini(("model-draft", "md", "spec-draft-model", "draft-model", "LLAMA_ARG_MODEL_DRAFT")),
    Ini(("hf-repo-draft", "hfd", "hfrd", "LLAMA_ARG_HFD_REPO"), read=hub_id),
    Unset("none"),
    Field(
        description=(
            "A small model with the same tokenizer, or an EAGLE-3 head of the model, which drafts. "
            "It is named as `model` is"
        )
    ),
]


def _spec_type(value: object) -> object:
    """Reads llama-server's word for it, too."""
    if value in (None, *OWN_HEAD):
        return value and OWN_HEAD[0]
    raise ValueError(
        f"{value!s:.50} is none: mtp has the head in the model's own files draft, model-draft "
        "names a draft model or an EAGLE-3 head, and draft-tokens alone drafts by prompt lookup"
    )


SpecType = Annotated[
    Literal["mtp"] | None,
    BeforeValidator(_spec_type),
    Ini(("spec-type", "LLAMA_ARG_SPEC_TYPE"), unset="none"),
    Unset("none"),
    Field(
        description="`mtp` (`draft-mtp`): the MTP head in the model's own files drafts",
    ),
]
DraftTokens = Annotated[
    int | None,
    Ini(
        (
            *("draft-tokens", "draft-max", "draft", "draft-n", "spec-draft-n-max"),
            "LLAMA_ARG_DRAFT_MAX",
        )
    ),
    Unset("0, with a draft model or head 8"),
    Field(
        ge=0,
        le=MAX_DRAFT_TOKENS,
        description=(
            "Most tokens guessed a step (speculative decoding), by prompt lookup, by the draft "
            "model or by the head. 0 is none"
        ),
    ),
]
DraftMin = Annotated[
    int,
    Ini(("draft-min", "draft-n-min", "spec-draft-n-min", "LLAMA_ARG_DRAFT_MIN")),
    Field(
        ge=0,
        le=MAX_DRAFT_TOKENS,
        description=(
            "Fewest tokens of a draft by the draft model or the head: a shorter one is not used. "
            "From 1 on it drafts whether or not that pays"
        ),
    ),
]
DraftPMin = Annotated[
    float,
    Ini(("draft-p-min", "spec-draft-p-min", "LLAMA_ARG_DRAFT_P_MIN")),
    Field(ge=0, le=1, description="A draft ends before a token that its model finds less probable"),
]
