"""The fields that requests for vectors share, of every protocol."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from deployments.contract.errors import refused
from deployments.ingress.http.schema import ModelName, Switch
from deployments.ingress.llamacpp.field_types import LoraFields
from deployments.ingress.pooling.texts import Truncation

MAX_TEXTS = 8192  # of one request
MAX_LIGHT_TEXTS = 16  # more take long to prepare

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "embed_dtype": ("float32",),
    "endianness": ("native", "little"),
    "mm_processor_kwargs": ({},),
    "padding": ("do_not_pad",),
    "stream": (False,),
}

Name = Annotated[str, Field(min_length=1, max_length=256)]
Identifier = Annotated[str, Field(max_length=512)]
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]
OwnLimit = Annotated[int, Field(ge=1)]


class PooledFields(LoraFields):
    """`truncate_prompt_tokens`: a longer text is cut to so many tokens, -1 for as many as the model
    takes. `truncation_side`: where it loses them.
    """

    model: ModelName = None
    user: Identifier | None = None
    safety_identifier: Identifier | None = None
    request_id: Identifier | None = None
    priority: Priority | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None
    truncation_side: Literal["left", "right"] | None = None

    @property
    def stream(self) -> bool | None:
        return None

    @property
    def n_texts(self) -> int:
        return 1

    @property
    def is_heavy(self) -> bool:
        return self.n_texts > MAX_LIGHT_TEXTS

    @property
    def truncation(self) -> Truncation | None:
        if self.truncate_prompt_tokens is None:
            return None
        keeps_end = self.truncation_side == "left"
        return Truncation(limit=self.truncate_prompt_tokens, keeps_end=keeps_end)

    @model_validator(mode="after")
    def _truncation_agrees(self) -> Self:
        if self.truncate_prompt_tokens == 0:
            message = "`truncate_prompt_tokens` must be -1 or at least 1"
            raise refused(message, "truncate_prompt_tokens")
        if self.truncation_side and self.truncate_prompt_tokens is None:
            message = "`truncation_side` requires `truncate_prompt_tokens`"
            raise refused(message, "truncation_side")
        return self


class TeiFields(PooledFields):
    """Fields of Text Embeddings Inference. `truncate`: a text is cut to what the model takes.
    `truncation_direction`: where. It may be sent where nothing is cut, and says nothing then.
    """

    truncate: Switch = None
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = None

    @property
    def truncation(self) -> Truncation | None:
        if not self.truncate:
            return super().truncation
        return Truncation(keeps_end=(self.truncation_direction or "").lower() == "left")

    @model_validator(mode="after")
    def _one_truncation(self) -> Self:
        if self.truncate and self.truncate_prompt_tokens is not None:
            message = "`truncate` cannot be combined with `truncate_prompt_tokens`"
            raise refused(message, "truncate")
        if self.truncation_direction is not None and self.truncate_prompt_tokens is not None:
            message = "`truncation_direction` goes with `truncate`, and `truncation_side` with "
            raise refused(f"{message}`truncate_prompt_tokens`", "truncation_direction")
        return self


def check_count(n_texts: int, param: str) -> None:
    if n_texts > MAX_TEXTS:
        raise refused(f"`{param}` must have at most {MAX_TEXTS} texts, got {n_texts}", param)
