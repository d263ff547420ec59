"""The bodies that ask for ranks and scores: rerank in the forms of Jina, Cohere and Text Embeddings
Inference, and vLLM's score.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from deployments.contract.errors import refused
from deployments.ingress.http.schema import Items, Strict, Switch
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.ingress.pooling.schema import (
    NEUTRAL,
    OwnLimit,
    PooledFields,
    TeiFields,
    check_count,
)
from deployments.ingress.pooling.texts import Truncation
from deployments.openai.ranking.scorer import Pairs

TemplateName = Annotated[str, Field(max_length=256)]
TemplateKwargs = Annotated[dict[TemplateName, JsonValue], Field(max_length=64)]
Texts = Annotated[Items[str], Field(min_length=1)]
OneOrMany = str | Texts
PerText = Annotated[int, Field(ge=0)]


class TextObject(Strict):
    """A document may have fields of the client's own, which come back with it."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]
    text: str
    image: Annotated[None, Field(description="Images are not ranked")] = None

    @property
    def whole(self) -> dict[str, JsonValue]:
        return {"text": self.text, **self.__pydantic_extra__}


class RankingFields(PooledFields):
    """`use_activation`: whether scores are probabilities; else as the model's files say. Cosines of
    embeddings stay as they are.
    `max_tokens_per_doc`, `max_tokens_per_query`: longer ones are cut; 0 for no limit.
    `instruction`: for rerankers whose template has one.
    """

    use_activation: Switch = None
    max_tokens_per_query: PerText | None = None
    max_tokens_per_doc: PerText | None = None
    instruction: Annotated[str, Field(max_length=65536)] | None = None
    chat_template_kwargs: TemplateKwargs | None = None

    @property
    def truncation(self) -> Truncation | None:
        asked = super().truncation
        per_text = self.max_tokens_per_query or None, self.max_tokens_per_doc or None
        if per_text == (None, None):
            return asked
        if asked is None:
            return Truncation(limit=None, per_text=per_text)
        return Truncation(limit=asked.limit, keeps_end=asked.keeps_end, per_text=per_text)


class RerankRequest(RankingFields):
    """Jina's, Cohere's and vLLM's. `top_n`: only the best results."""

    query: str
    documents: Annotated[Items[str | TextObject], Field(min_length=1)]
    top_n: OwnLimit | None = None
    return_documents: Switch = None
    is_cohere: ClassVar[bool] = False

    @property
    def n_texts(self) -> int:
        return len(self.documents) + 1

    @property
    def texts(self) -> list[str]:
        return [
            document if isinstance(document, str) else document.text for document in self.documents
        ]

    @property
    def whole_documents(self) -> list[dict[str, JsonValue]]:
        return [
            {"text": document} if isinstance(document, str) else document.whole
            for document in self.documents
        ]

    @property
    def pairs(self) -> Pairs:
        return _one_to_many(self.query, self.texts, ("query", "documents"), self)

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        check_count(self.n_texts, "documents")
        return self


class CohereRerankRequest(RerankRequest):
    """POST /v2/rerank, where a document that is too long is cut."""

    is_cohere: ClassVar[bool] = True

    @property
    def truncation(self) -> Truncation | None:
        asked = super().truncation or Truncation()
        return asked if asked.limit is not None else replace(asked, limit=-1)


class TextsRerankRequest(TeiFields):
    """The request of Text Embeddings Inference, which llama-server has too."""

    query: str
    texts: Texts
    top_n: OwnLimit | None = None
    raw_scores: Switch = None
    return_text: Switch = None

    @property
    def use_activation(self) -> bool | None:
        return None if self.raw_scores is None else not self.raw_scores

    @property
    def n_texts(self) -> int:
        return len(self.texts) + 1

    @property
    def pairs(self) -> Pairs:
        return _one_to_many(self.query, self.texts, ("query", "texts"), None)

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        check_count(self.n_texts, "texts")
        return self


class ScoreRequest(RankingFields):
    """vLLM's: one text with each of several, or two lists of the same length, pair by pair."""

    NAMES: ClassVar[tuple[tuple[str, str], ...]] = (
        ("queries", "documents"),
        ("queries", "items"),
        ("data_1", "data_2"),
        ("text_1", "text_2"),
    )
    queries: OneOrMany | None = None
    documents: OneOrMany | None = None
    items: OneOrMany | None = None
    data_1: OneOrMany | None = None
    data_2: OneOrMany | None = None
    text_1: OneOrMany | None = None
    text_2: OneOrMany | None = None

    @property
    def names(self) -> tuple[str, str]:
        given = {name for names in self.NAMES for name in names if getattr(self, name) is not None}
        found = next((names for names in self.NAMES if given == set(names)), None)
        if found is None:
            forms = ", ".join(f"`{first}` and `{second}`" for first, second in self.NAMES)
            raise refused(f"The texts must be in two fields: one of {forms}", "queries")
        return found

    @property
    def lists(self) -> tuple[list[str], list[str]]:
        first, second = (getattr(self, name) for name in self.names)
        return _list(first), _list(second)

    @property
    def n_texts(self) -> int:
        return sum(map(len, self.lists))

    @property
    def pairs(self) -> Pairs:
        firsts, seconds = self.lists
        is_one = len(firsts) == 1
        return Pairs(
            firsts=firsts,
            seconds=seconds,
            order=[(0 if is_one else index, index) for index in range(len(seconds))],
            params=self.names,
            instruction=self.instruction,
            template_kwargs=self.chat_template_kwargs or {},
        )

    @model_validator(mode="after")
    def _lists_agree(self) -> Self:
        (firsts, seconds), names = self.lists, self.names
        check_count(len(firsts) + len(seconds), names[1])
        if len(firsts) not in (1, len(seconds)):
            message = (
                f"`{names[0]}` must have one text, or as many as `{names[1]}`: it has "
                f"{len(firsts)}, and `{names[1]}` has {len(seconds)}"
            )
            raise refused(message, names[0])
        return self


AnyRanking = RerankRequest | TextsRerankRequest | ScoreRequest


def _list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def _one_to_many(
    query: str, texts: list[str], params: tuple[str, str], fields: RankingFields | None
) -> Pairs:
    return Pairs(
        firsts=[query],
        seconds=texts,
        order=[(0, index) for index in range(len(texts))],
        params=params,
        instruction=fields.instruction if fields else None,
        template_kwargs=(fields.chat_template_kwargs if fields else None) or {},
    )


def parse_rerank(body: object) -> RerankRequest | TextsRerankRequest:
    """Parses either form: Text Embeddings Inference has `texts` in the place of `documents`."""
    if isinstance(body, dict) and "texts" in body and "documents" not in body:
        return parse(TextsRerankRequest, refuse_unsupported(body, NEUTRAL))
    neutral = {**NEUTRAL, "max_chunks_per_doc": (), "rank_fields": ([], ["text"])}
    return parse(RerankRequest, refuse_unsupported(body, neutral))


def parse_cohere_rerank(body: object) -> CohereRerankRequest:
    return parse(CohereRerankRequest, refuse_unsupported(body, NEUTRAL))


def parse_score(body: object) -> ScoreRequest:
    return parse(ScoreRequest, refuse_unsupported(body, NEUTRAL))
