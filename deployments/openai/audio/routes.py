"""POST /v1/audio/transcriptions and /v1/audio/translations."""

from collections.abc import Callable, Mapping, Sequence

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp

from deployments.contract.errors import RequestError
from deployments.contract.model_card import ModelCard
from deployments.contract.speech_rules import SpeechRules
from deployments.ingress.error_bodies import openai_error_fields
from deployments.ingress.generation.answer import Answer, while_connected
from deployments.ingress.generation.caller import caller_of
from deployments.ingress.generation.delayed_answer import DelayedAnswer
from deployments.ingress.http.app import request_id_of
from deployments.ingress.http.clients import owner_of
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.sse import data, encode
from deployments.ingress.metrics import InflightGuard
from deployments.ingress.off_loop import BodyWork
from deployments.ingress.routes.service import Service, nothing, reserve_of
from deployments.media.file_types import FileKind
from deployments.media.source import Source
from deployments.openai.audio.answer import FormatError, TranscriptAnswer
from deployments.openai.audio.bodies import media_types
from deployments.openai.audio.form import FORM, Form, read_form
from deployments.openai.audio.schema import (
    TranscriptionForm,
    TranslationForm,
    TranslationRequest,
    parse_transcription,
    parse_translation,
)
from deployments.openai.audio.spoken_chat import SpokenChatBuilder, SpokenRequest
from deployments.openai.audio.transcriber import Transcriber, check_aligns, spoken_language

Parse = Callable[[Mapping[str, Sequence[str]]], TranslationRequest]


def error_event(error: RequestError) -> bytes:
    return data(encode({"error": openai_error_fields(error)}))


def audio_routes(service: Service) -> list[DocumentedRoute]:
    return [
        transcription_route(service, "/v1/audio/transcriptions", error_event),
        _route(
            service,
            "/v1/audio/translations",
            TranslationForm,
            parse_translation,
            error_event,
            media_types(streams=False),
        ),
    ]


def transcription_route(service: Service, path: str, format_error: FormatError) -> DocumentedRoute:
    """`format_error` makes an event of an error in a stream."""
    types = media_types(streams=True)
    return _route(service, path, TranscriptionForm, parse_transcription, format_error, types)


def _route(
    service: Service,
    path: str,
    body: type[BaseModel],
    parse: Parse,
    format_error: FormatError,
    types: Sequence[str],
) -> DocumentedRoute:
    name = f"audio_{path.rpartition('/')[2]}"

    async def endpoint(http: Request) -> ASGIApp:
        guard = service.metrics.guard(name)
        try:
            with guard.until_answered():
                return await _answer(service, http, parse, format_error, guard)
        except ClientDisconnect:
            return nothing

    return DocumentedRoute(
        path,
        endpoint,
        methods=["POST"],
        name=name,
        tag="Generation",
        body=body,
        body_type=FORM,
        media_types=types,
    )


async def _answer(
    service: Service, http: Request, parse: Parse, format_error: FormatError, guard: InflightGuard
) -> ASGIApp:
    connection = service.enter(http, guard)
    form = await read_form(http, service.settings)
    asked = parse(form.fields)
    card = await while_connected(service.engine.card(asked.model), http.receive)
    if card.speech is None:
        return await _spoken_chat(service, http, form, asked, format_error, guard, connection)
    preparing = _transcriber(service, http, form, asked, card, card.speech, connection)
    transcriber = await while_connected(preparing, http.receive)
    guard.serving(transcriber.card.name, stream=asked.is_stream)
    return TranscriptAnswer(transcriber, guard, service.settings, format_error)


async def _spoken_chat(
    service: Service,
    http: Request,
    form: Form,
    asked: TranslationRequest,
    format_error: FormatError,
    guard: InflightGuard,
    connection: str,
) -> Answer | DelayedAnswer:
    work = BodyWork(service.off_loop, form.n_bytes, connection)
    owner = owner_of(http)
    caller = caller_of(http, {}, connection, owner)
    context = service.request_context(http, http.headers, owner, connection, work)
    source = Source(kind=FileKind.AUDIO, path="file", file=form.file)
    builder = SpokenChatBuilder(asked, context.read_media, format_error)
    request = SpokenRequest(asked=asked, source=source)
    return await service.begin(http, request, builder, guard, caller, work)


async def _transcriber(
    service: Service,
    http: Request,
    form: Form,
    asked: TranslationRequest,
    card: ModelCard,
    rules: SpeechRules,
    connection: str,
) -> Transcriber:
    language = spoken_language(asked, card, rules)
    check_aligns(asked, card, rules)
    work = BodyWork(service.off_loop, form.n_bytes, connection)
    tokenizer = await work.run(
        lambda: service.tokenizers.get(card), is_heavy=not service.tokenizers.is_built(card)
    )
    reserve, rate = reserve_of(http, work), rules.sampling_rate
    samples = await service.media.read_speech(form.file, "file", rate, connection, reserve)
    caller = caller_of(http, {}, connection, owner_of(http))
    return Transcriber(
        engine=service.engine,
        card=card,
        rules=rules,
        tokenizer=tokenizer,
        asked=asked,
        samples=samples,
        request_id=request_id_of(http),
        caller=caller,
        salt="" if service.settings.shared_prefixes else caller.salt(""),
        language=language,
    )
