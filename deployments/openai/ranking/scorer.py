"""How a model scores pairs of texts: by a head that reads both, by the yes and no of a generator,
or by comparing their vectors.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import LabelParams, ModelTask, OutputParams, PoolParams, Vectors
from deployments.ingress.pooling.texts import (
    PooledText,
    TextEncoder,
    Truncation,
    check_repeated,
    role_prompt,
)
from deployments.ingress.pooling.vectors import numbers
from deployments.openai.ranking.activations import activated, activation_of, sigmoid
from deployments.openai.ranking.templates import Frame, frame_of, knows_pairs
from deployments.text.tokens.tokenizer import TextTokenizer

Matrix = NDArray[np.float64]
EUCLIDEAN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """`order` has a pair of indices, into `firsts` and `seconds`, for each score.

    params: the fields of the request that the first and the second texts are from.
    """

    firsts: Sequence[str]
    seconds: Sequence[str]
    order: Sequence[tuple[int, int]]
    params: tuple[str, str]
    instruction: str | None
    template_kwargs: Mapping[str, object]


class Scorer(ABC):
    def __init__(
        self, card: ModelCard, tokenizer: TextTokenizer, truncation: Truncation | None, pairs: Pairs
    ) -> None:
        self._card = card
        self._tokenizer = tokenizer
        self._truncation = truncation
        self._encoder = TextEncoder(card, tokenizer, truncation)
        self._pairs = pairs

    @abstractmethod
    def texts(self) -> Sequence[PooledText]:
        """Raises Refused."""

    def check_repeated(self) -> None:
        """Checks how much text pairs that are read together repeat. Raises Refused."""
        pairs, (first, second) = self._pairs, self._pairs.params
        of_all, firsts = len(pairs.instruction or ""), [*map(len, pairs.firsts)]
        n_characters = sum(of_all + firsts[of_pair] for of_pair, _ in pairs.order) - sum(firsts)
        check_repeated(n_characters, second, f"each is read with its `{first}`")

    @abstractmethod
    def scores(self, vectors: Sequence[Vectors], use_activation: bool | None) -> list[float]:
        """Returns the scores in the order of the pairs. `vectors` are in the order of the texts."""

    def _framed(self, output: OutputParams) -> list[PooledText]:
        """Each pair in the model's template, of which only the second text is ever cut."""
        pairs, frames = self._pairs, self._frames()
        return [
            self._encoder.within(*frames[first], pairs.seconds[second], output, self._param(second))
            for first, second in pairs.order
        ]

    def _frames(self) -> list[Frame]:
        """Around the second text, for each first one."""
        pairs = self._pairs
        if self._truncation is not None and self._truncation.per_text[0] is not None:
            name = "max_tokens_per_query"
            message = f"`{name}`: the query is in a template of the model {self._card.name!r}"
            raise refused(f"{message}, where it can't be cut", name)
        return [
            frame_of(self._card, self._tokenizer, first, pairs.instruction, pairs.template_kwargs)
            for first in pairs.firsts
        ]

    def _param(self, second: int) -> str:
        return f"{self._pairs.params[1]}[{second}]"


class HeadScorer(Scorer):
    def texts(self) -> Sequence[PooledText]:
        output, pairs = PoolParams(use_head=True), self._pairs
        self.check_repeated()
        if knows_pairs(self._card):
            return self._framed(output)
        if pairs.instruction is not None or pairs.template_kwargs:
            raise _no_template(self._card)
        return [
            self._encoder.pair(
                pairs.firsts[first], pairs.seconds[second], output, self._param(second)
            )
            for first, second in pairs.order
        ]

    def scores(self, vectors: Sequence[Vectors], use_activation: bool | None) -> list[float]:
        activation = activation_of(self._card, 1, use_activation)
        return [activated(numbers(output.data)[:1], activation)[0] for output in vectors]


class YesNoScorer(Scorer):
    """The score is the probability of yes among yes and no, or the logarithm of its odds."""

    def texts(self) -> Sequence[PooledText]:
        self.check_repeated()
        return self._framed(LabelParams(token_ids=self._card.answers.score_token_ids))

    def scores(self, vectors: Sequence[Vectors], use_activation: bool | None) -> list[float]:
        odds = [yes - no for yes, no in (numbers(output.data)[:2] for output in vectors)]
        return odds if use_activation is False else [sigmoid(logit) for logit in odds]


class VectorScorer(Scorer):
    """Cosines. Of models with a vector for each token: the mean, over the tokens of the first text,
    of the cosine with the nearest token of the second one.
    """

    def texts(self) -> Sequence[PooledText]:
        pairs = self._pairs
        if pairs.instruction is not None or pairs.template_kwargs:
            raise _no_template(self._card)
        return [*self._side(pairs.firsts, 0, "query"), *self._side(pairs.seconds, 1, "document")]

    def _side(self, texts: Sequence[str], side: int, role: str) -> list[PooledText]:
        output, param = PoolParams(normalize=EUCLIDEAN), self._pairs.params[side]
        truncation = self._truncation
        if truncation is not None:
            truncation = replace(truncation, per_text=truncation.per_text[side : side + 1])
        encoder = TextEncoder(self._card, self._tokenizer, truncation)
        prompt = role_prompt(self._card, role, param)
        return [
            encoder.one(text, output, f"{param}[{index}]", prompt)
            for index, text in enumerate(texts)
        ]

    def scores(self, vectors: Sequence[Vectors], use_activation: bool | None) -> list[float]:
        firsts = [_matrix(output) for output in vectors[: len(self._pairs.firsts)]]
        seconds = vectors[len(firsts) :]
        return [
            float((firsts[first] @ _matrix(seconds[second]).T).max(axis=1).mean())
            for first, second in self._pairs.order
        ]


def scorer_of(card: ModelCard) -> type[Scorer]:
    """Returns the scorer of a model whose card passes `check_ranks`."""
    if card.answers.score_token_ids:
        return YesNoScorer
    return HeadScorer if card.answers.task is ModelTask.SCORE else VectorScorer


def _matrix(vectors: Vectors) -> Matrix:
    return np.frombuffer(vectors.data, "<f4").reshape(vectors.n, -1).astype(np.float64)


def _no_template(card: ModelCard) -> Exception:
    message = f"`instruction`: the model {card.name!r} has no template that could hold one"
    return refused(message, "instruction")
