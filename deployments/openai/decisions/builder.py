"""Decisions: what a generator thinks of each option of a question, read off its next token."""

import time
from collections.abc import Sequence

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Vectors
from deployments.ingress.generation.abilities import check_generates
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.generation.response_builder import Usage
from deployments.ingress.http.sse import encode
from deployments.ingress.pooling.builder import PooledBuilder
from deployments.ingress.pooling.texts import PooledText
from deployments.openai.decisions import schema, systemone
from deployments.openai.decisions.questions import QuestionEncoder, Reading, read
from deployments.openai.decisions.schema import DecisionRequest
from deployments.openai.decisions.systemone import SystemOneRequest
from deployments.openai.request_headers import read_headers
from deployments.text.tokens.tokenizer import TextTokenizer


class DecisionBuilder(PooledBuilder[DecisionRequest | SystemOneRequest]):
    prefix = "decision"

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context, read_headers(context.headers).tenant)

    def check_model(self, request: DecisionRequest | SystemOneRequest, card: ModelCard) -> None:
        check_generates(card)

    def texts(
        self, request: DecisionRequest | SystemOneRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[PooledText]:
        encoder = QuestionEncoder(card, tokenizer, request.instructions, request.template_kwargs)
        return encoder.encode(request.about, request.asked)

    def format_body(self, vectors: Sequence[Vectors], usage: Usage) -> bytes:
        readings = [read(output) for output in vectors]
        if isinstance(self._request, DecisionRequest):
            return encode(self._decisions(self._request, readings, usage))
        return encode(self._systemone(self._request, readings, usage))

    def _decisions(
        self, request: DecisionRequest, readings: Sequence[Reading], usage: Usage
    ) -> object:
        answers = [
            {"name": question.name, **_answer(question, reading)}
            for question, reading in zip(request.questions, readings, strict=True)
        ]
        cached = {"cached_tokens": usage.cached_tokens, **usage.cached_details}
        return {
            "model": self._card.answers_as,
            "answers": answers,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {**cached, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt_tokens,
            },
        }

    def _systemone(
        self, request: SystemOneRequest, readings: Sequence[Reading], usage: Usage
    ) -> object:
        read_by_id = dict(zip(request.questions, readings, strict=True))
        return {
            "id": self._id,
            "object": "structured_decision",
            "created": int(time.time()),
            "model": self._card.answers_as,
            "answers": {
                name: _typed_answer(question, read_by_id[name])
                for name, question in request.questions.items()
            },
            "usage": {"input_tokens": usage.prompt_tokens, "output_tokens": 0},
            "diagnostics": {
                name: {"label_mass": reading.mass} for name, reading in read_by_id.items()
            },
        }


def _answer(question: schema.AnyQuestion, reading: Reading) -> dict[str, object]:
    """Returns the answer in the form of /v1/decisions."""
    match question:
        case schema.Predicate():
            return {"type": "predicate", "probability": reading.probabilities[0]}
        case schema.Choice():
            values = [choice.value for choice in question.choices]
            return {
                "type": "choice",
                "choice": values[reading.best],
                "confidence": reading.confidence,
                "probabilities": [
                    {"value": value, "probability": probability}
                    for value, probability in zip(values, reading.probabilities, strict=True)
                ],
            }
    levels = zip(question.levels, reading.probabilities, strict=True)
    return {
        "type": "score",
        "score": reading.expected,
        "confidence": reading.confidence,
        "probabilities": [
            {"value": value, "label": level.label, "probability": probability}
            for value, (level, probability) in enumerate(levels)
        ],
    }


def _typed_answer(question: systemone.AnyQuestion, reading: Reading) -> dict[str, object]:
    """Returns the answer in the form of /v1/systemone."""
    names = [option.name for option in question.options]
    answer: dict[str, object] = {"type": question.type, "confidence": reading.confidence}
    match question:
        case systemone.Noul():
            answer["noul"] = reading.probabilities[0]
        case systemone.SystemOneChoice():
            answer["choice"] = names[reading.best]
        case systemone.SystemOneScore():
            answer["score"] = reading.expected
            answer["legend"] = {str(index): name for index, name in enumerate(names)}
            names = [str(index) for index in range(len(names))]
    return {**answer, "probabilities": dict(zip(names, reading.probabilities, strict=True))}
