"""POST /v1/chat/completions/control reaches the replicas that may have the completion."""

import asyncio
from typing import Any

import httpx
import pytest

from deployments.model.settings import MODEL_DEPLOYMENT, application_name
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.chat.chatting import asked_of, thinker
from tests.openai.serving import post
from tests.text.cards import card

PATH = "/v1/chat/completions/control"
END: dict[str, Any] = {"id": "chatcmpl-1", "action": "reasoning_end"}


class Telling(ScriptedEngine):
    """Two replicas of the model and one of each ingress; those `having` chatcmpl-1 say so."""

    having: tuple[str, ...] = (MODEL_DEPLOYMENT,)

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        assert method == "end_thoughts"
        self.told.append(deployment)
        if deployment == MODEL_DEPLOYMENT:
            assert application == application_name("tiny")
            return [False, deployment in self.having and args == ("chatcmpl-1",)]
        return [deployment in self.having and args == ("chatcmpl-1", ["tiny"])]

    def __init__(self) -> None:
        super().__init__(says("x"))
        self.told: list[str] = []


def control(*having: str, **fields: object) -> httpx.Response:
    engine = Telling()
    engine.having = having or engine.having
    return asyncio.run(post(engine, PATH, {**END, **fields}))


def test_who_has_the_answer_notes_the_order_before_any_replica_hears_of_it() -> None:
    engine = Telling()
    asyncio.run(post(engine, PATH, END))
    assert sorted(engine.told[:2]) == ["llama", "openai"]
    assert engine.told[2:] == [MODEL_DEPLOYMENT]


@pytest.mark.parametrize("ingress", ["llama", "openai"])
def test_an_answer_between_two_replicas_is_told_as_well(ingress: str) -> None:
    assert control(ingress).json() == {"success": True}


def test_a_thought_is_ended_where_it_is() -> None:
    for fields in ({}, {"model": "tiny"}):
        response = control(**fields)
        assert (response.status_code, response.json()) == (200, {"success": True})
    unknown = {"success": False, "message": "no active completion for this id"}
    response = control(id="chatcmpl-2")
    assert (response.status_code, response.json()) == (200, unknown)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"id": ""}, 400, "id"),
        ({"id": None}, 400, "id"),
        ({"action": "stop"}, 400, "action"),
        ({"model": "other"}, 404, "model"),
        ({"more": 1}, 400, "more"),
    ],
)
def test_what_names_no_thought_is_refused(
    fields: dict[str, object], status: int, param: str
) -> None:
    response = control(**fields)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)


def test_who_wants_to_end_a_thought_gets_a_budget_that_is_never_spent() -> None:
    [request] = asked_of(thinker(), reasoning_control=True)
    assert request.request_id == f"{request.response_id}-0"
    assert request.thinking is not None
    assert request.thinking.tokens >= thinker().context_length
    [bounded] = asked_of(thinker(), reasoning_control=True, thinking_token_budget=3)
    assert bounded.thinking is not None
    assert bounded.thinking.tokens == 3
    for unasked in (asked_of(thinker()), asked_of(card(), reasoning_control=True)):
        assert unasked[0].thinking is None
