"""GET /slots shows running requests as slots; POST /slots/{id} saves, restores or erases one.

A slot is the last sequence that the same owner's requests with this `id_slot` have left on any
replica. The replica where that was acts on it.
"""

from collections.abc import Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelStatus
from deployments.contract.slots import MAX_SLOTS, SlotAction, SlotReport, SlotStatus, SlotVerb
from deployments.ingress.fleet.cluster import Cluster, find_model, inspect_model
from deployments.ingress.generation.caller import session_of_slot
from deployments.ingress.http.body import parse_json, read_command
from deployments.ingress.http.clients import owner_of
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.validation import parse
from deployments.ingress.routes.model_management import switch
from deployments.ingress.settings import IngressSettings
from deployments.llama.server.filenames import is_filename
from deployments.llama.server.replicas import replicas_of
from deployments.model.settings import MODEL_DEPLOYMENT

Held = list[tuple[str, Mapping[int, SlotStatus]]]  # what the slots of an owner hold, by replica


class SlotBody(Strict):
    """`model` may be in the query, too. Only a file that is saved or restored has a name."""

    filename: str | None = None
    model: str | None = None


def slot_routes(cluster: Cluster, settings: IngressSettings) -> list[Route]:
    async def list_slots(request: Request) -> Response:
        wants_idle = switch(request, "fail_on_no_slot")
        model, card = await inspect_model(cluster, request.query_params.get("model"))
        replicas = await replicas_of(cluster, model)
        busy = [
            slot < stats["active_requests"]
            for stats in replicas.stats
            for slot in range(replicas.slots_each)
        ]
        if wants_idle and all(busy):
            raise Refused.of_kind(ErrorKind.OVERLOADED, "no slot available")
        held = await _held(cluster, model, card, owner_of(request))
        n_tokens = {slot: status.n_tokens for slot, status in _newest(held).items()}
        busy += [False] * (max(n_tokens, default=-1) + 1 - len(busy))
        same = {"n_ctx": card.context_length, "speculative": replicas.speculates}
        slots: list[dict[str, object]] = [
            {"id": slot, **same, "is_processing": now} for slot, now in enumerate(busy)
        ]
        for slot, n in n_tokens.items():
            slots[slot]["n_prompt_tokens"] = n
        return JSONResponse(slots)

    async def act(request: Request) -> Response:
        id_slot, verb = _slot_of(request), _verb_of(request)
        raw = await read_command(request, settings)
        body = parse(SlotBody, parse_json(raw)) if raw else SlotBody()
        name = _model_of(request, body)
        if verb is SlotVerb.RESTORE:  # of which the first one loads the model
            card = await cluster.card(name)
            model = find_model(await cluster.statuses(), card.name)
        else:
            model, card = await inspect_model(cluster, name)
        if not card.saves_slots:
            message = "This server does not support slots action. Start it with `--slot-save-path`"
            raise Refused.of_kind(ErrorKind.NOT_SUPPORTED, message)
        filename, owner = _filename(body, verb), owner_of(request)
        action = SlotAction(verb=verb, owner=owner, id_slot=id_slot, filename=filename)
        report = await _act(cluster, model, card, action)
        return JSONResponse(_answer(action, report))

    return [
        DocumentedRoute(
            "/slots",
            list_slots,
            methods=["GET"],
            name="list_slots",
            tag="Server",
            query=["model", "fail_on_no_slot"],
        ),
        DocumentedRoute(
            "/slots/{id}",
            act,
            methods=["POST"],
            name="act_on_slot",
            tag="Server",
            body=SlotBody,
            query=["model"],
            needed=["action"],
            refusals=[ErrorKind.STORAGE_FULL],
        ),
    ]


def _slot_of(request: Request) -> int:
    number = request.path_params["id"]
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise refused("Invalid slot ID", "id")
    if int(number) >= MAX_SLOTS:
        raise refused(f"Invalid slot ID: it must be less than {MAX_SLOTS}", "id")
    return int(number)


def _verb_of(request: Request) -> SlotVerb:
    try:
        return SlotVerb(request.query_params.get("action", ""))
    except ValueError as error:
        verbs = ", ".join(SlotVerb)
        raise refused(f"Invalid action: `action` must be one of {verbs}", "action") from error


def _model_of(request: Request, body: SlotBody) -> str | None:
    name = request.query_params.get("model")
    if None not in (name, body.model) and name != body.model:
        raise refused("`model` is another one in the query than in the body", "model")
    return body.model if name is None else name


def _filename(body: SlotBody, verb: SlotVerb) -> str:
    if verb is SlotVerb.ERASE:
        if body.filename is not None:
            raise refused("`filename`: what is erased is a slot in memory, and no file", "filename")
        return ""
    if body.filename is None:
        raise refused("`filename` is missing", "filename")
    if not is_filename(body.filename):
        raise refused("Invalid filename: it must be a plain name, and no path", "filename")
    return body.filename


async def _act(
    cluster: Cluster, model: ModelStatus, card: ModelCard, action: SlotAction
) -> SlotReport:
    """Acts where the slot is. Where others had it before, they forget what they have."""
    owner, id_slot, verb = action.owner, action.id_slot, action.verb
    session = session_of_slot(owner, id_slot)
    held = await _held(cluster, model, card, owner)
    having = [(slots[id_slot].used_at, replica) for replica, slots in held if id_slot in slots]
    if verb is SlotVerb.RESTORE:
        return await cluster.act_on_slot(card.name, action, None, session)
    if verb is SlotVerb.SAVE:
        if not having:  # so that no replica wakes to say so
            why = f"no request with `id_slot` {id_slot} has ended since the model began or slept"
            raise refused(f"Unable to save slot: {why}")
        return await cluster.act_on_slot(card.name, action, max(having)[1], session)
    report = SlotReport(0)
    for _, replica in sorted(having):  # the newest one last
        report = await cluster.act_on_slot(card.name, action, replica, session)
    return report


async def _held(cluster: Cluster, model: ModelStatus, card: ModelCard, owner: str) -> Held:
    if not card.saves_slots:
        return []
    answers = await cluster.broadcast(model.application, MODEL_DEPLOYMENT, "slots", owner)
    if not answers:
        message = f"The model {model.name!r} has no replica that answers"
        raise Refused.of_kind(ErrorKind.UNAVAILABLE, message, "model")
    return cast(Held, answers)


def _newest(held: Held) -> Mapping[int, SlotStatus]:
    """Says what each slot holds: on several replicas, what it was left with last."""
    found: dict[int, SlotStatus] = {}
    for _, slots in held:
        for slot, status in slots.items():
            if slot not in found or status.used_at > found[slot].used_at:
                found[slot] = status
    return found


def _answer(action: SlotAction, report: SlotReport) -> Mapping[str, object]:
    """llama-server's object."""
    if action.verb is SlotVerb.ERASE:
        return {"id_slot": action.id_slot, "n_erased": report.n_tokens}
    tokens, n_bytes, ms = {
        SlotVerb.SAVE: ("n_saved", "n_written", "save_ms"),
        SlotVerb.RESTORE: ("n_restored", "n_read", "restore_ms"),
    }[action.verb]
    return {
        "id_slot": action.id_slot,
        "filename": action.filename,
        tokens: report.n_tokens,
        n_bytes: report.n_bytes,
        "timings": {ms: report.ms},
    }
