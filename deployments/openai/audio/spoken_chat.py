"""Transcripts of a language model that hears: it is asked for them in words, and has no times."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deployments.contract.errors import Refused, RequestError, refused
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import SamplingParams
from deployments.ingress.generation.abilities import transcribes, unable
from deployments.ingress.generation.plan import Plan
from deployments.ingress.generation.request_context import ReadMedia
from deployments.ingress.generation.response_builder import Generation, ResponseBuilder, Usage
from deployments.ingress.http.sse import data, encode
from deployments.media.prompt_media import NO_MEDIA
from deployments.media.source import Source
from deployments.openai.audio.answer import FormatError
from deployments.openai.audio.bodies import TYPES, token_usage
from deployments.openai.audio.schema import TranslationRequest
from deployments.text.chat.conversation import Conversation, prepare_prompt
from deployments.text.chat.media_parts import PARAM as MESSAGES
from deployments.text.chat.media_parts import expand_text, ids_with_placeholders
from deployments.text.chat.prompt import Prompt
from deployments.text.dialects.parsing.pieces import ContentPiece
from deployments.text.stream import TextDelta
from deployments.text.tokens.tokenizer import TextTokenizer

LANGUAGE = re.compile("[a-z]{2,3}")  # a code of ISO 639
WITHOUT_TIMES = ("json", "text")
TRANSCRIBE = "Write down what is said, word for word. Answer with that alone."
TRANSLATE = "Say in English what is said. Answer with that alone."
SEED_BITS = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenRequest:
    """A form whose file is `source`."""

    asked: TranslationRequest
    source: Source

    @property
    def model(self) -> str | None:
        return self.asked.model

    @property
    def stream(self) -> bool:
        return self.asked.is_stream

    @property
    def is_heavy(self) -> bool:
        return False


class SpokenChatBuilder(ResponseBuilder[SpokenRequest]):
    """`format_error` makes an event of an error in a stream."""

    _has_parser: bool

    def __init__(
        self, asked: TranslationRequest, read_media: ReadMedia, format_error: FormatError
    ) -> None:
        self._asked = asked
        self._read_media = read_media
        self.content_type = TYPES[asked.response_format]
        self._format_error = format_error
        self._media = NO_MEDIA
        self._text = ""  # so far

    def check_model(self, request: SpokenRequest, card: ModelCard) -> None:
        if not transcribes(card):
            raise unable(card, "transcribe sounds")
        if request.asked.response_format not in WITHOUT_TIMES:
            name = "response_format"
            message = f"`{name}`: the model {card.name!r} hears no times: use json or text"
            raise refused(message, name)
        spoken = request.asked.spoken
        if spoken and not LANGUAGE.fullmatch(spoken):
            raise refused("`language` must be a code of ISO 639, such as de", "language")

    async def recall(self, request: SpokenRequest, card: ModelCard) -> None:
        self._media = await self._read_media((request.source,), card)

    def prepare(
        self, request: SpokenRequest, card: ModelCard, tokenizer: TextTokenizer
    ) -> Sequence[Generation]:
        sound = self._media.text_of(request.source)
        try:
            prompt = self._prompt(sound, card, tokenizer)
        except Refused as refusal:
            raise _named(refusal, request.source.path) from refusal
        self._has_parser = prompt.parser() is not None
        seed = uuid.uuid4().int % (1 << SEED_BITS)
        plan = Plan(
            card=card,
            tokenizer=tokenizer,
            response_id=f"transcript-{uuid.uuid4().hex}",
            prompts=[prompt],
            sampling=SamplingParams(temperature=self._asked.temperature, seed=seed),
            prompt_param=request.source.path,
        )
        return plan.generations()

    def _prompt(self, sound: str, card: ModelCard, tokenizer: TextTokenizer) -> Prompt:
        """Returns a prompt of a form of its own if the model was trained on one, else a chat."""
        form = card.media.audio.transcript_form if card.media and card.media.audio else ""
        if form and not self._asked.is_translation and not self._asked.prompt:
            language = f"lang:{self._asked.spoken}" if self._asked.spoken else ""
            return self._formed(form.format(sound=sound, language=language), card, tokenizer)
        message = {"role": "user", "content": f"{sound}\n{_instruction(self._asked)}"}
        conversation = Conversation(messages=[message], media=self._media)
        return prepare_prompt(conversation, card, tokenizer)

    def _formed(self, text: str, card: ModelCard, tokenizer: TextTokenizer) -> Prompt:
        def encode(text: str) -> Sequence[int]:
            return tokenizer.encode(text, add_special_tokens=True, limit=card.context_length)

        expanded = expand_text(text, self._media, card.media)
        ids, ranges = ids_with_placeholders(expanded, encode, card, "file")
        return Prompt(text=expanded.text, ids=ids, media=expanded.media, placeholder_ranges=ranges)

    def format_stream_start(self) -> bytes:
        return b""

    def format_chunk(self, choice: int, delta: TextDelta, usage: Usage) -> bytes:
        said = self._said(delta)
        text = said if self._text else said.lstrip()
        self._text += text
        return data(encode({"type": "transcript.text.delta", "delta": text})) if text else b""

    def format_stream_end(self, usage: Usage) -> bytes:
        done = {"type": "transcript.text.done", "text": self._text.rstrip()}
        return data(encode({**done, "usage": _usage(usage)}))

    def format_stream_error(self, error: RequestError) -> bytes:
        return self._format_error(error)

    def format_response(self, choices: Sequence[TextDelta], usage: Usage) -> bytes:
        [choice] = choices
        text = self._said(choice).strip()
        if self._asked.response_format == "text":
            return f"{text}\n".encode()
        return encode({"text": text, "usage": _usage(usage)})

    def _said(self, delta: TextDelta) -> str:
        """Returns the text without thoughts. A prompt of a form of its own has no parser."""
        if not self._has_parser:
            return delta.text
        return "".join(piece.text for piece in delta.pieces if isinstance(piece, ContentPiece))


def _instruction(asked: TranslationRequest) -> str:
    parts = [TRANSLATE if asked.is_translation else TRANSCRIBE]
    if asked.spoken:
        parts.append(f"The language has the code {asked.spoken}.")
    if asked.prompt.strip():
        parts.append(f"Before it was said: {asked.prompt.strip()}")
    return " ".join(parts)


def _named(refusal: Refused, path: str) -> Refused:
    """Returns the refusal with the field that a form has in the place of messages."""
    error = refusal.error
    if error.param != MESSAGES:
        return refusal
    message = error.message.replace(f"`{MESSAGES}`", f"`{path}`")
    return Refused(replace(error, message=message, param=path))


def _usage(usage: Usage) -> object:
    return token_usage(usage.prompt_tokens, usage.output_tokens)
