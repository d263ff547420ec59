"""Transcribes a sound window by window: where the last time of one is, the next one begins.

Each window is a request of its own to the engine, so that others run beside it.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import exp
from struct import unpack
from typing import NamedTuple

from deployments.contract.errors import Refused, refused
from deployments.contract.events import TokenEvent
from deployments.contract.media_rules import MediaKind
from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import AlignParams, LabelParams
from deployments.contract.requests import GenerationRequest, MediumFile, SamplingParams
from deployments.contract.speech_rules import SpeechRules
from deployments.ingress.generation.caller import Caller
from deployments.ingress.generation.engine_client import Engine
from deployments.openai.audio.schema import TranslationRequest
from deployments.openai.audio.segments import Segment, Window, cut, text_ids
from deployments.openai.audio.words import Word, words_of
from deployments.text.tokens.tokenizer import TextTokenizer
from kv.content import DIGEST_BYTES, Content, PlaceholderRange

SAMPLE_BYTES = 2
WARMER = (0.2, 0.4, 0.6, 0.8, 1.0)  # temperatures, where a window's likeliest text is no good one
SHORTEST_S = 0.1  # of a last window


class Heard(NamedTuple):
    """A window, its segments with their texts, and their words where these are asked for."""

    window: Window
    segments: Sequence[tuple[Segment, str]]
    words: Sequence[Word] = ()


def spoken_language(asked: TranslationRequest, card: ModelCard, rules: SpeechRules) -> str | None:
    """Its code; None: it is to be found out. Raises Refused."""
    codes = dict(rules.languages)
    names = {name: code for code, name in rules.language_names}
    spoken = names.get(asked.spoken or "", asked.spoken)
    if asked.is_translation and rules.translate is None:
        message = f"The model {card.name!r} can't translate: it knows English only"
        raise refused(message, "model")
    if spoken is None:
        return None if codes else "en"
    if spoken not in (codes or {"en": 0}):
        known = ", ".join(codes or ["en"])
        message = f"`language`: the model {card.name!r} knows no {asked.spoken!r}, but {known}"
        raise refused(message, "language")
    return spoken


def check_aligns(asked: TranslationRequest, card: ModelCard, rules: SpeechRules) -> None:
    """Raises Refused."""
    if asked.has_words and not rules.can_align:
        name = "timestamp_granularities"
        message = f"`{name}`: the files of the model {card.name!r} do not say how words are timed"
        raise refused(message, name)


@dataclass(slots=True, kw_only=True, eq=False)
class Transcriber:
    """The transcriber of one request. `language` is known when the first window was heard."""

    engine: Engine
    card: ModelCard
    rules: SpeechRules
    tokenizer: TextTokenizer
    asked: TranslationRequest
    samples: bytes = field(repr=False)
    request_id: str
    caller: Caller
    salt: str
    language: str | None
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    _n_requests: int = 0

    @property
    def language_name(self) -> str | None:
        """The word for it, which OpenAI's answers have."""
        return dict(self.rules.language_names).get(self.language or "", self.language)

    @property
    def seconds(self) -> float:
        return self._n_samples / self.rules.sampling_rate

    @property
    def _n_samples(self) -> int:
        return len(self.samples) // SAMPLE_BYTES

    async def windows(self) -> AsyncIterator[Heard]:
        """Raises Refused."""
        first, shortest = 0, int(SHORTEST_S * self.rules.sampling_rate)
        while first < self._n_samples and (not first or self._n_samples - first > shortest):
            window = await self._window(first)
            segments, n_samples = cut(window, self.rules)
            texts = [(segment, self._text(segment.ids)) for segment in segments]
            spoken = [(segment, text) for segment, text in texts if text.strip()]
            words: list[Word] = []
            if self.asked.has_words and spoken:
                window = await self._aligned(window)
                words = [word for segment, _ in spoken for word in self._words(window, segment)]
            yield Heard(window, spoken, words)
            first += n_samples

    async def _window(self, first: int) -> Window:
        data = self._data(first)
        no_speech = await self._labels(data)
        given = self.asked.temperature
        prompt = self._prompt(is_first=first == 0)
        found: Window | None = None
        for temperature in (given,) if given else (0.0, *WARMER):
            ids, logprob = await self._said(data, prompt, temperature)
            found = Window(
                first=first,
                n_samples=len(data) // SAMPLE_BYTES,
                ids=ids,
                logprob=logprob,
                temperature=temperature,
                no_speech=no_speech,
                text=self._text(ids),
            )
            if found.is_good:
                break
        assert found is not None
        return found

    def _data(self, first: int) -> bytes:
        begin, n_bytes = first * SAMPLE_BYTES, self.rules.window * SAMPLE_BYTES
        return self.samples[begin : begin + n_bytes]

    async def _aligned(self, window: Window) -> Window:
        """Returns the window with the ticks of its tokens: the model reads them once more."""
        prompt = self._prompt(is_first=window.first == 0)
        request = replace(
            self._request(self._data(window.first), (*prompt, *window.ids)),
            max_tokens=0,
            output=AlignParams(n_before=len(prompt)),
        )
        return replace(window, ticks=await self._vector(request, len(window.ids)))

    def _words(self, window: Window, segment: Segment) -> list[Word]:
        return words_of(window, segment, self.rules, self.language, self.tokenizer.decode)

    async def _labels(self, data: bytes) -> float:
        """The probability that nobody speaks in a window; finds out the language, too."""
        codes = [code for code, _ in self.rules.languages]
        token_ids = (self.rules.no_speech, *(id for _, id in self.rules.languages))
        request = replace(
            self._request(data, (self.rules.start,)),
            max_tokens=0,
            output=LabelParams(token_ids=token_ids),
        )
        logprobs = await self._vector(request, len(token_ids))
        if self.language is None:
            self.language = max(zip(logprobs[1:], codes, strict=True))[1]
        return exp(logprobs[0])

    async def _vector(self, request: GenerationRequest, n: int) -> tuple[float, ...]:
        """The one vector of `n` numbers that a request asks for."""
        numbers: tuple[float, ...] = ()
        async for event in self._events(request):
            if event.vectors is not None:
                numbers = unpack(f"<{n}f", event.vectors.data)
        return numbers

    async def _said(
        self, data: bytes, prompt: tuple[int, ...], temperature: float
    ) -> tuple[tuple[int, ...], float]:
        """The ids without the end, and the log-probability of each on average."""
        sampling = SamplingParams(
            temperature=temperature, logprobs=0, transcript=self.rules.transcript
        )
        request = replace(self._request(data, prompt), sampling=sampling)
        ids: list[int] = []
        total = 0.0
        async for event in self._events(request):
            ids += event.token_ids
            total += sum(token.logprob for token in event.logprobs or ())
            self.cached_tokens += event.cached_tokens if event.finish_reason else 0
        self.prompt_tokens += len(prompt)
        self.output_tokens += len(ids)
        spoken = tuple(id for id in ids if id != self.rules.transcript.end)
        return spoken, total / max(1, len(ids))

    def _prompt(self, *, is_first: bool) -> tuple[int, ...]:
        rules = self.rules
        ids = [rules.start]
        if rules.languages:
            assert self.language is not None
            task = rules.translate if self.asked.is_translation else rules.transcribe
            ids += [dict(rules.languages)[self.language], *([] if task is None else [task])]
        before = self.asked.prompt.strip() if is_first else ""
        if not before:
            return tuple(ids)
        room = self.card.context_length // 2 - 1
        said = self.tokenizer.encode_literally(" " + before, False)
        return (rules.before, *said[-room:], *ids)

    def _request(self, data: bytes, prompt: tuple[int, ...]) -> GenerationRequest:
        self._n_requests += 1
        digest = blake2b(data, digest_size=DIGEST_BYTES).digest()
        medium = PlaceholderRange(digest, 0, self.card.context_length)
        return GenerationRequest(
            request_id=f"{self.request_id}-{self._n_requests}",
            response_id=self.request_id,
            prompt_ids=prompt,
            content=Content(self.salt, media=(medium,)),
            media=(MediumFile(kind=MediaKind.AUDIO, data=data),),
            client=self.caller.client,
            owner=self.caller.owner,
        )

    async def _events(self, request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        async with aclosing(self.engine.generate(self.card, request, lambda: False)) as events:
            async for event in events:
                if event.error is not None:
                    raise Refused(event.error)
                yield event

    def _text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(text_ids(ids, self.rules))
