"""The bodies that ask for embeddings: OpenAI's with vLLM's fields, llama-server's, vLLM's /pooling,
Text Embeddings Inference's and Cohere's. All answer the same questions of the builder.
"""

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import AnswerKinds, ModelTask, Pooling
from deployments.ingress.http.schema import (
    Items,
    LongItems,
    Strict,
    Switch,
    TextsAndIds,
    TokenId,
    TokenIds,
)
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.ingress.pooling.schema import (
    NEUTRAL,
    Name,
    OwnLimit,
    PooledFields,
    TeiFields,
    check_count,
)
from deployments.ingress.pooling.texts import Text, Truncation, named_prompt, role_prompt

Texts = Annotated[Items[str], Field(min_length=1)]
Inputs = str | Texts | TokenIds | Annotated[Items[TokenIds], Field(min_length=1)]
EUCLIDEAN, UNNORMALIZED = 2, -1  # llama-server's embd_normalize
MAX_NORM = 64


class EmbeddingFields(PooledFields, ABC):
    param: ClassVar[str]  # the field of the texts
    size_param: ClassVar[str] = "dimensions"

    @property
    @abstractmethod
    def texts(self) -> list[Text]: ...

    @property
    def n_texts(self) -> int:
        return len(self.texts)

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Numbers of a vector, if not all of them."""

    @property
    def named_pooling(self) -> Pooling | None:
        return None

    @property
    def may_be_of_tokens(self) -> bool:
        """Whether its answer has a place for a vector for each token."""
        return False

    @property
    def frames(self) -> bool:
        """Whether texts get the model's special tokens."""
        return True

    @property
    def as_base64(self) -> bool:
        return False

    @abstractmethod
    def norm(self, kinds: AnswerKinds) -> int | None:
        """Returns the norm of the vectors as `PoolParams.normalize` has it."""

    @abstractmethod
    def prompt(self, card: ModelCard) -> str:
        """Returns the prompt that goes before each text. Raises Refused."""

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        check_count(self.n_texts, self.param)
        return self


class EmbeddingPromptFields(EmbeddingFields):
    """`prompt_name`: a prompt of the model's files, which goes before each text. `input_type`: the
    same by the role of the texts, for which models have different names.
    `pooling`: where the model has none of its own, or another one is wanted.
    """

    dimensions: OwnLimit | None = None
    prompt_name: Name | None = None
    input_type: Name | None = None
    pooling: Annotated[Pooling, Field(strict=False)] | None = None
    add_special_tokens: Switch = None

    @property
    def size(self) -> int | None:
        return self.dimensions

    @property
    def named_pooling(self) -> Pooling | None:
        return self.pooling

    @property
    def frames(self) -> bool:
        return self.add_special_tokens is not False

    def prompt(self, card: ModelCard) -> str:
        if self.input_type is not None:
            return role_prompt(card, self.input_type, "input_type")
        return named_prompt(card, self.prompt_name, "prompt_name")

    @model_validator(mode="after")
    def _ids_have_no_prompt(self) -> Self:
        for name in ("prompt_name", "input_type"):
            if getattr(self, name) is not None and not all(isinstance(x, str) for x in self.texts):
                raise refused(f"`{name}` is for texts: token ids are taken as they are", name)
        return self

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if self.prompt_name is not None and self.input_type is not None:
            raise refused("`prompt_name` cannot be combined with `input_type`", "prompt_name")
        return self


class InputFields(EmbeddingPromptFields):
    """`use_activation`: whether vectors have the length 1; else as the model's files say. Those of
    a generator have it: its files say nothing.
    """

    param: ClassVar[str] = "input"
    input: Inputs
    encoding_format: Literal["float", "base64"] | None = None
    use_activation: Switch = None

    @property
    def texts(self) -> list[Text]:
        return _listed(self.input)

    @property
    def as_base64(self) -> bool:
        return self.encoding_format == "base64"

    def norm(self, kinds: AnswerKinds) -> int | None:
        if self.use_activation is None:
            return EUCLIDEAN if kinds.task is ModelTask.GENERATE else None
        return EUCLIDEAN if self.use_activation else UNNORMALIZED


class EmbeddingsRequest(InputFields):
    """POST /v1/embeddings."""

    @model_validator(mode="after")
    def _has_one_vector(self) -> Self:
        if self.pooling is Pooling.TOKEN:
            message = "`pooling`: a vector for each token is of POST /embedding and POST /pooling"
            raise refused(message, "pooling")
        return self


class PoolingRequest(InputFields):
    """POST /pooling: one vector, one for each token, or the logits of a head."""

    task: Literal["embed", "token_embed", "classify"] | None = None

    @property
    def named_pooling(self) -> Pooling | None:
        return Pooling.TOKEN if self.task == "token_embed" else self.pooling

    @property
    def may_be_of_tokens(self) -> bool:
        return self.task != "embed"

    @model_validator(mode="after")
    def _task_agrees(self) -> Self:
        is_of_tokens = self.task == "token_embed"
        if self.task and self.pooling and is_of_tokens != (self.pooling is Pooling.TOKEN):
            message = f"`pooling`: {self.pooling} cannot be combined with `task`: {self.task}"
            raise refused(message, "pooling")
        if self.task == "classify":
            for name in ("dimensions", "pooling", "encoding_format"):
                if getattr(self, name) is not None:
                    raise refused(f"`{name}` cannot be combined with `task`: classify", name)
        return self


class EmbeddingPromptObject(Strict):
    prompt_string: str


NativeInput = (
    str
    | EmbeddingPromptObject
    | Annotated[LongItems[str | TokenId | TextsAndIds | EmbeddingPromptObject], Field(min_length=1)]
)


class NativeRequest(EmbeddingPromptFields):
    """POST /embedding: `content` is llama-server's name, and `input` is another one for it. Vectors
    of tokens are as the model has them, unless `embd_normalize` says otherwise.
    """

    param: ClassVar[str] = "content"
    content: NativeInput = Field(validation_alias=AliasChoices("content", "input"))
    embd_normalize: Annotated[int, Field(ge=-1, le=MAX_NORM)] | None = None

    @property
    def may_be_of_tokens(self) -> bool:
        return True

    @property
    def texts(self) -> list[Text]:
        content = self.content
        if isinstance(content, str | EmbeddingPromptObject):
            return [_native(content)]
        mixed = [part for part in content if isinstance(part, str | int)]
        if any(isinstance(part, int) for part in mixed):
            return [mixed]
        return [_native(text) for text in content if not isinstance(text, int)]

    def norm(self, kinds: AnswerKinds) -> int | None:
        if self.embd_normalize is not None:
            return self.embd_normalize
        is_of_tokens = (self.pooling or kinds.pooling) is Pooling.TOKEN
        return UNNORMALIZED if is_of_tokens else EUCLIDEAN

    @model_validator(mode="after")
    def _is_one_list_or_many(self) -> Self:
        content = self.content if isinstance(self.content, list) else []
        kinds = {type(part) for part in content}
        if int in kinds and kinds - {int, str}:
            message = "`content`: a list of ids may hold strings, and no lists or objects"
            raise refused(message, "content")
        return self


def _native(one: str | EmbeddingPromptObject | list[str | int]) -> Text:
    return one.prompt_string if isinstance(one, EmbeddingPromptObject) else one


class EmbedRequest(TeiFields, EmbeddingFields):
    """POST /embed of Text Embeddings Inference."""

    param: ClassVar[str] = "inputs"
    inputs: Inputs
    normalize: Switch = None
    prompt_name: Name | None = None
    dimensions: OwnLimit | None = None

    @property
    def texts(self) -> list[Text]:
        return _listed(self.inputs)

    @property
    def size(self) -> int | None:
        return self.dimensions

    def norm(self, kinds: AnswerKinds) -> int | None:
        return UNNORMALIZED if self.normalize is False else EUCLIDEAN

    def prompt(self, card: ModelCard) -> str:
        return named_prompt(card, self.prompt_name, "prompt_name")


class CohereEmbedRequest(EmbeddingFields):
    """POST /v2/embed. A text that is too long is cut unless `truncate` is NONE."""

    param: ClassVar[str] = "texts"
    size_param: ClassVar[str] = "output_dimension"
    given: Texts = Field(alias="texts")
    input_type: Name | None = None
    output_dimension: OwnLimit | None = None
    embedding_types: (
        Annotated[list[Literal["float", "base64"]], Field(min_length=1, max_length=64)] | None
    ) = None
    truncate: Literal["NONE", "START", "END"] | None = None
    max_tokens: OwnLimit | None = None

    @property
    def texts(self) -> list[Text]:
        return list(self.given)

    @property
    def size(self) -> int | None:
        return self.output_dimension

    @property
    def types(self) -> list[str]:
        return list(dict.fromkeys(self.embedding_types or ["float"]))

    @property
    def as_base64(self) -> bool:
        return self.types == ["base64"]

    @property
    def truncation(self) -> Truncation | None:
        if self.truncate == "NONE":
            return None
        return Truncation(limit=self.max_tokens or -1, keeps_end=self.truncate == "START")

    def norm(self, kinds: AnswerKinds) -> int | None:
        return EUCLIDEAN if kinds.task is ModelTask.GENERATE else None

    def prompt(self, card: ModelCard) -> str:
        if self.input_type is None:
            return named_prompt(card, None, "input_type")
        return role_prompt(card, self.input_type, "input_type")

    @model_validator(mode="after")
    def _truncation_is_one(self) -> Self:
        if self.truncate_prompt_tokens is not None:
            message = "`truncate_prompt_tokens` is not a field of this form: use `max_tokens`"
            raise refused(message, "truncate_prompt_tokens")
        if self.truncate == "NONE" and self.max_tokens is not None:
            raise refused("`max_tokens` cannot be combined with `truncate`: NONE", "max_tokens")
        return self


def _listed(inputs: str | list[str] | list[int] | list[list[int]]) -> list[Text]:
    """One entry for each text, for all four forms."""
    if isinstance(inputs, str):
        return [inputs]
    ids = [token_id for token_id in inputs if isinstance(token_id, int)]
    return [ids] if ids else [text for text in inputs if not isinstance(text, int)]


def parse_embeddings(body: object) -> EmbeddingsRequest | NativeRequest:
    """Parses OpenAI's form, or llama-server's own.

    A body with `content` in the place of `input` is in llama-server's form, as it is there.
    """
    if isinstance(body, dict) and "content" in body and "input" not in body:
        return parse_native(body)
    return parse(EmbeddingsRequest, refuse_unsupported(body, NEUTRAL))


def parse_pooling(body: object) -> PoolingRequest:
    return parse(PoolingRequest, refuse_unsupported(body, NEUTRAL))


def parse_native(body: object) -> NativeRequest:
    if isinstance(body, dict) and "content" in body and "input" in body:
        raise refused("`content` cannot be combined with `input`", "content")
    neutral = {**NEUTRAL, "encoding_format": ("float",)}
    return parse(NativeRequest, refuse_unsupported(body, neutral))


def parse_embed(body: object) -> EmbedRequest:
    return parse(EmbedRequest, refuse_unsupported(body, NEUTRAL))


def parse_cohere_embed(body: object) -> CohereEmbedRequest:
    neutral = {**NEUTRAL, "images": ([],), "inputs": ([],)}
    return parse(CohereEmbedRequest, refuse_unsupported(body, neutral))
