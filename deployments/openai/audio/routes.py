"""POST /v1/audio/transcriptions and /v1/audio/translations."""

from collections.abc import Callable, Mapping, Sequence

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.ingress.generation.answer import while_connected
from deployments.ingress.generation.caller import caller_of
from deployments.ingress.http.app import request_id_of
from deployments.ingress.http.clients import owner_of
from deployments.ingress.metrics import InflightGuard
from deployments.ingress.off_loop import BodyWork
from deployments.ingress.routes.service import Service, hold_of, nothing
from deployments.openai.audio.answer import TranscriptAnswer
from deployments.openai.audio.form import Form, read_form
from deployments.openai.audio.schema import (
    TranslationRequest,
    parse_transcription,
    parse_translation,
)
from deployments.openai.audio.transcriber import Transcriber, spoken_language
from deployments.wire import refused

Parse = Callable[[Mapping[str, Sequence[str]]], TranslationRequest]


def audio_routes(service: Service) -> list[Route]:
    return [
        _route(service, "transcriptions", parse_transcription),
        _route(service, "translations", parse_translation),
    ]


def _route(service: Service, name: str, parse: Parse) -> Route:
    async def endpoint(http: Request) -> ASGIApp:
        guard = service.metrics.guard(f"audio_{name}")
        try:
            with guard.until_answered():
                return await _answer(service, http, parse, guard)
        except ClientDisconnect:
            return nothing

    path = f"/v1/audio/{name}"
    return Route(path, endpoint, methods=["POST"], name=f"audio_{name}", include_in_schema=False)


async def _answer(
    service: Service, http: Request, parse: Parse, guard: InflightGuard
) -> TranscriptAnswer:
    connection = service.enter(http, guard)
    form = await read_form(http, service.settings)
    asked = parse(form.fields)
    preparing = _transcriber(service, http, form, asked, connection)
    transcriber = await while_connected(preparing, http.receive)
    guard.serving(transcriber.card.name, stream=asked.is_stream)
    return TranscriptAnswer(transcriber, guard, service.settings)


async def _transcriber(
    service: Service, http: Request, form: Form, asked: TranslationRequest, connection: str
) -> Transcriber:
    card = await service.engine.card(asked.model)
    rules = card.speech
    if rules is None:
        raise refused(f"The model {card.name!r} can't transcribe sounds", "model")
    language = spoken_language(asked, card, rules)
    work = BodyWork(service.off_loop, form.n_bytes, connection)
    tokenizer = await work.run(
        lambda: service.tokenizers.get(card), is_heavy=not service.tokenizers.holds(card)
    )
    hold, rate = hold_of(http, work), rules.sampling_rate
    samples = await service.media.read_speech(form.file, "file", rate, connection, hold)
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
