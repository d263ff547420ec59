"""The parts that a protocol brings: its requests as generations, the bytes of its answers."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from deployments.contract.errors import RequestError
from deployments.contract.events import TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from deployments.ingress.generation.abilities import check_generates
from deployments.ingress.http.sse import EVENT_STREAM, StreamType
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer


class ApiRequest(Protocol):
    @property
    def model(self) -> str | None: ...
    @property
    def stream(self) -> bool | None: ...
    @property
    def is_heavy(self) -> bool:
        """Whether it takes long to prepare, however short its body is."""


ApiRequestT = TypeVar("ApiRequestT", bound=ApiRequest, contravariant=True)


class SequenceText(Protocol):
    """Makes the text of one sequence, as `deployments.text.stream.TextStream` does."""

    @property
    def may_stop(self) -> bool: ...

    @property
    def is_complete(self) -> bool: ...

    def push(self, event: TokenEvent) -> TextDelta: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One choice of an answer: the request to the engine, and what makes its text.

    Of choices with the same prompt only one `counts_prompt` in the usage. `warnings` say what of
    the client's request it leaves out.
    """

    request: GenerationRequest
    text: SequenceText
    counts_prompt: bool = True
    warnings: tuple[str, ...] = ()


class Usage:
    """The token counts of an answer so far; final when its generations have ended."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        self._counts_prompt = [generation.counts_prompt for generation in generations]
        self._last = [TextDelta()] * len(generations)
        self.prompt_tokens = sum(
            len(generation.request.prompt_ids)
            for generation in generations
            if generation.counts_prompt
        )
        self.output_tokens = 0
        self.thought_tokens = 0  # of the output tokens
        self.cached_tokens = 0
        self._by_source: Counter[str] = Counter()

    def add(self, choice: int, delta: TextDelta) -> None:
        last, self._last[choice] = self._last[choice], delta
        self.output_tokens += delta.output_tokens - last.output_tokens
        self.thought_tokens += delta.thought_tokens - last.thought_tokens
        if self._counts_prompt[choice]:
            self.cached_tokens += delta.cached_tokens - last.cached_tokens
            if delta.cached_by_source != last.cached_by_source:
                self._by_source.update(dict(delta.cached_by_source))
                self._by_source.subtract(dict(last.cached_by_source))

    @property
    def cached_details(self) -> Mapping[str, object]:
        """A field that says where cached tokens came from; none where that is the device alone."""
        return cached_details(self._by_source.items())


def cached_details(by_source: Iterable[tuple[str, int]]) -> Mapping[str, object]:
    """The field of that name, as SGLang has it; a source that the model has not is left out."""
    sources = dict(by_source)
    return {"cached_tokens_details": sources} if sources else {}


class UnaryBuilder(ABC, Generic[ApiRequestT]):
    """Serves one request with one body of `content_type`. `check_model`, `recall` and `prepare` are
    called first, in this order; the other methods may use what these stored.
    """

    content_type: bytes = b"application/json"

    def check_model(self, request: ApiRequestT, card: ModelCard) -> None:
        """Whether the model can answer such a request. Raises Refused."""
        check_generates(card)

    async def recall(self, request: ApiRequestT, card: ModelCard) -> None:
        """Reads what `prepare` needs of a store, and media, before each of its calls. Raises
        Refused.
        """
        return

    @abstractmethod
    def prepare(
        self, request: ApiRequestT, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        """One generation for each choice, in their order. Raises Refused."""

    def check_size(self, generations: Sequence[Generation]) -> None:
        """Called on the event loop with what `prepare` has made, before any of it is started.

        Raises Refused for an answer that there is no room for.
        """
        return

    async def finish(self, choices: Sequence[TextDelta], usage: Usage) -> None:
        """Stores what can be asked for later. It comes before `format_response`, with its choices,
        and before `format_stream_end`, without any. Raises Refused.
        """
        return

    @abstractmethod
    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        """The unary body; each choice is the fold of its deltas."""


class ResponseBuilder(UnaryBuilder[ApiRequestT]):
    """Serves one request with a body, or with a stream of `stream_type`, as the request asks.
    `keep_alive_s` is called before all else.
    """

    stream_type: ClassVar[StreamType] = EVENT_STREAM

    def keep_alive_s(self, request: ApiRequestT, default: float) -> float | None:
        """Seconds of silence before a keep-alive; None for none."""
        return default

    @abstractmethod
    def format_stream_start(self) -> bytes:
        """The frames before the first chunk. They are sent together with it."""

    @abstractmethod
    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        """The events of one delta; b"" for none."""

    @abstractmethod
    def format_stream_end(self, usage: Usage) -> bytes: ...

    @abstractmethod
    def format_stream_error(self, error: RequestError) -> bytes:
        """Closes a stream whose generation failed after `format_stream_start`."""

    def format_refusal(self, error: RequestError) -> bytes:
        """Closes a stream that failed before, of which only keep-alives were sent."""
        return self.format_stream_error(error)
