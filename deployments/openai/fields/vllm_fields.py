"""The fields that vLLM adds to OpenAI's, and the merging of `nvext` into the request's fields."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from deployments.contract.errors import refused
from deployments.ingress.http.schema import Switch
from deployments.ingress.llamacpp.field_types import NEUTRAL as NATIVE
from deployments.openai.fields.llamacpp_fields import LlamaCppFields
from deployments.openai.fields.nvext import ServedNvExt

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    **NATIVE,
    "allowed_token_ids": (),
    "guided_decoding_backend": ("auto", "guidance", "llguidance"),
    "guided_whitespace_pattern": (),
    "kv_transfer_params": (),
    "length_penalty": (1, 1.0),
    "logprob_token_ids": ([],),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "prompt_embeds": (),
    "response_fields": ([], [""]),  # editors send the second for none
    "spaces_between_special_tokens": (True,),
    "store": (False,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}


class VllmFields(LlamaCppFields):
    prompt_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    return_token_ids: Switch = None
    return_tokens_as_token_ids: Switch = None
    nvext: ServedNvExt | None = None

    @model_validator(mode="after")
    def _join_nvext(self) -> Self:
        """A field set in both places must have one value."""
        twins = {} if self.nvext is None else self.nvext.twins()
        for name, (param, value) in twins.items():
            if value is None:
                continue
            if name not in type(self).model_fields:
                raise refused(f"`{param}` is not supported on this endpoint", param)
            if getattr(self, name) not in (None, value):
                raise refused(f"`{param}` must equal `{name}`", param)
            if name == "repetition_penalty" and self.repeat_penalty not in (None, value):
                raise refused(f"`{param}` must equal `repeat_penalty`", param)
            setattr(self, name, value)
        if self.nvext is not None and self.nvext.greedy:
            self.temperature = 0.0  # greedy, whatever the temperature
        return self

    @model_validator(mode="after")
    def _prompt_logprobs_come_whole(self) -> Self:
        if self.prompt_logprobs is not None and self.stream:  # as vLLM has it
            raise refused(
                "`prompt_logprobs` cannot be combined with `stream`: true", "prompt_logprobs"
            )
        return self
