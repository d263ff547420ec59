"""Questions about an input, as prompts whose next token is the label of an answer."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from string import ascii_uppercase

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import LabelParams, Vectors
from deployments.ingress.pooling.texts import PooledText, TextEncoder, check_repeated
from deployments.ingress.pooling.vectors import numbers
from deployments.openai.ranking.activations import softmax
from deployments.text.tokens.tokenizer import TextTokenizer

REPLY = "Reply with nothing but the label of the one answer that fits best."
NEAR_END = 4096  # characters, in which a template's last mark is


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """`param`: the field that it is from, in the words of the request."""

    text: str
    options: Sequence[Option]
    param: str


@dataclass(frozen=True, slots=True)
class Reading:
    """The model's answer to a question.

    probabilities: those of the options, 1 in all.
    mass: the probability of the options' labels together, among all tokens. Where it is low the
        model wanted to say something else.
    """

    probabilities: Sequence[float]
    mass: float

    @property
    def best(self) -> int:
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)

    @property
    def confidence(self) -> float:
        return self.probabilities[self.best] * self.mass

    @property
    def expected(self) -> float:
        """The mean of the options' indices."""
        return sum(index * probability for index, probability in enumerate(self.probabilities))


def read(vectors: Vectors) -> Reading:
    logprobs = numbers(vectors.data)
    mass = sum(map(math.exp, logprobs))
    return Reading(softmax(logprobs), min(mass, 1.0))


class QuestionEncoder:
    """`instructions` go ahead of all questions."""

    def __init__(
        self,
        card: ModelCard,
        tokenizer: TextTokenizer,
        instructions: str,
        template_kwargs: Mapping[str, object],
    ) -> None:
        self._card = card
        self._tokenizer = tokenizer
        self._encoder = TextEncoder(card, tokenizer)
        self._system = [{"role": "system", "content": instructions}] if instructions else []
        self._template_kwargs = {"enable_thinking": False, **template_kwargs}
        self._labels: dict[tuple[str, int], dict[str, int]] = {}

    def encode(self, about: str, questions: Sequence[Question]) -> list[PooledText]:
        """Raises Refused."""
        template = self._render("x")
        of_all = len(about) + len(template)
        n_characters = sum(of_all + _length(question) for question in questions)
        check_repeated(n_characters, "questions", "each is asked with the whole input")
        end = template[-NEAR_END:]
        return [self._encode(about, question, end) for question in questions]

    def _encode(self, about: str, question: Question, end: str) -> PooledText:
        labels = self._labels_at(end, question)
        rendered = self._render(f"{about}\n\n{_asked(question, labels)}")
        output = LabelParams(token_ids=tuple(labels.values()))
        return self._encoder.within(rendered, "", "", output, question.param)

    def _render(self, content: str) -> str:
        messages = [*self._system, {"role": "user", "content": content}]
        return self._tokenizer.render_texts(messages, self._template_kwargs)

    def _labels_at(self, end: str, question: Question) -> dict[str, int]:
        """Returns as many labels as there are options, with their tokens. Raises Refused."""
        n, tail = len(question.options), self._tail(end)
        if (tail, n) not in self._labels:
            self._labels[tail, n] = dict(islice(self._found(tail), n))
        labels = self._labels[tail, n]
        if len(labels) < n:
            message = (
                f"`{question.param}` has {n} answers: the model {self._card.name!r} has tokens to "
                f"tell {len(labels)} apart"
            )
            raise refused(message, question.param)
        return labels

    def _tail(self, end: str) -> str:
        """Returns the text behind the last mark of a prompt: no token reaches across the mark."""
        marks = [str(token["content"]) for token in self._tokenizer.added_tokens.values()]
        starts = (end.rfind(mark) + len(mark) for mark in marks if mark in end)
        return end[max(starts, default=0) :]

    def _found(self, tail: str) -> Iterator[tuple[str, int]]:
        """Labels that are one token behind the tail, each another one."""
        before = self._tokenizer.encode(tail, False)
        taken: set[int] = set()
        for label in _names():
            *start, last = self._tokenizer.encode(tail + label, False)
            if start == before and last not in taken:
                taken.add(last)
                yield label, last


def _names() -> Iterator[str]:
    """A, B, ..., Z, AA, AB, ..., ZZ."""
    for length in (1, 2):
        yield from map("".join, product(ascii_uppercase, repeat=length))


def _asked(question: Question, labels: Iterable[str]) -> str:
    lines = [f"Question: {question.text}"] if question.text else []
    for label, option in zip(labels, question.options, strict=True):
        described = f": {option.description}" if option.description else ""
        lines.append(f"{label}. {option.name}{described}")
    return "\n".join([*lines, REPLY])


def _length(question: Question) -> int:
    return len(question.text) + sum(
        len(option.name) + len(option.description) for option in question.options
    )
