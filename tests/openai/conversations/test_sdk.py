"""The real client on conversations, as its users write it."""

from typing import Any

import pytest
from openai import NotFoundError

from tests.ingress.engines import says
from tests.openai.conversations.talking import visiting
from tests.openai.responses.responding import CALL, WEATHER, prompt_of

FIRST: Any = [
    {"role": "developer", "content": "Be kind."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One?"}]},
]
TOOL: Any = WEATHER


async def test_a_conversation_is_made_read_changed_and_deleted(url: str) -> None:
    async with visiting(url, says("x")) as (client, _):
        talks = client.conversations
        made = await talks.create(items=FIRST, metadata={"topic": "numbers"})
        assert (made.object, made.metadata) == ("conversation", {"topic": "numbers"})
        assert made.id.startswith("conv_")
        assert await talks.retrieve(made.id) == made
        changed = await talks.update(made.id, metadata={"topic": "letters"})
        assert changed == made.model_copy(update={"metadata": {"topic": "letters"}})
        assert (await talks.update(made.id, metadata=None)).metadata == {}
        assert (await talks.create()).metadata == {}
        deleted = await talks.delete(made.id)
        assert (deleted.id, deleted.deleted, deleted.object) == (
            made.id,
            True,
            "conversation.deleted",
        )
        for gone in (talks.retrieve(made.id), talks.delete(made.id), talks.items.list(made.id)):
            with pytest.raises(NotFoundError):
                await gone
        with pytest.raises(NotFoundError):
            await talks.update(made.id, metadata={})


async def test_items_are_added_listed_read_and_deleted(url: str) -> None:
    async with visiting(url, says("x")) as (client, _):
        talks = client.conversations
        made = await talks.create(items=FIRST)
        added = await talks.items.create(made.id, items=[{"role": "user", "content": "Two?"}])
        [item] = added.data
        assert (added.object, added.first_id, added.last_id) == ("list", item.id, item.id)
        assert item.type == "message"
        assert (item.role, item.status) == ("user", "completed")
        assert await talks.items.retrieve(item.id, conversation_id=made.id) == item
        listed = [entry async for entry in talks.items.list(made.id, limit=2, order="asc")]
        assert [entry.type for entry in listed] == ["message"] * 3
        newest = await talks.items.list(made.id, include=["message.output_text.logprobs"])
        assert newest.data == listed[::-1]
        rest = await talks.items.list(made.id, after=str(newest.data[0].id))
        assert rest.data == listed[1::-1]
        assert await talks.items.delete(item.id, conversation_id=made.id) == made
        with pytest.raises(NotFoundError):
            await talks.items.retrieve(item.id, conversation_id=made.id)
        with pytest.raises(NotFoundError):
            await talks.items.delete(item.id, conversation_id=made.id)


async def test_a_response_continues_a_conversation_and_adds_to_it(url: str) -> None:
    async with visiting(url, says(f"Let me see. {CALL}")) as (client, engine):
        made = await client.conversations.create(items=FIRST)
        answer = await client.responses.create(
            model="tiny", input="Two?", conversation=made.id, tools=[TOOL]
        )
        assert answer.conversation is not None
        assert answer.conversation.id == made.id
        [call] = [item for item in answer.output if item.type == "function_call"]
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        async with client.responses.stream(
            model="tiny", input=[result], conversation={"id": made.id}, tools=[TOOL]
        ) as stream:
            await stream.get_final_response()
        items = [item async for item in client.conversations.items.list(made.id, order="asc")]
        assert [item.type for item in items] == [
            *["message"] * 4,
            "function_call",
            "function_call_output",
            "message",
            "function_call",
        ]
        inputs = [item async for item in client.responses.input_items.list(answer.id, order="asc")]
        assert [item.id for item in inputs] == [item.id for item in items[:3]]
        later = await client.responses.create(
            model="tiny", input="Three?", previous_response_id=answer.id, tools=[TOOL], store=False
        )
        assert later.conversation is None
    first, second, third = (prompt_of(request) for request in engine.requests)
    for text in ("Be kind.", "One?", "Two?"):
        assert text in first
    assert second.startswith(first)
    assert "sunny" in second
    assert "sunny" not in third
    assert third.startswith(first)


async def test_a_response_that_is_not_stored_adds_to_its_conversation(url: str) -> None:
    async with visiting(url, says("Hello")) as (client, _):
        made = await client.conversations.create()
        answer = await client.responses.create(
            model="tiny", input="Hello", conversation=made.id, store=False
        )
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(answer.id)
        items = [item async for item in client.conversations.items.list(made.id, order="asc")]
        assert len(items) == 2
        assert items[-1].id == answer.output[0].id


async def test_a_response_outlives_the_process_that_made_it(url: str) -> None:
    async with visiting(url, says("Hello there")) as (client, _):
        made = (await client.responses.create(model="tiny", input="Hello")).id
    async with visiting(url, says("More")) as (client, engine):
        found = await client.responses.retrieve(made)
        assert found.output_text == "Hello there"
        again = await client.responses.create(
            model="tiny", input="And?", previous_response_id=found.id
        )
        await client.responses.delete(found.id)
        inputs = [item async for item in client.responses.input_items.list(again.id)]
        assert len(inputs) == 3
    assert "Hello there" in prompt_of(engine.requests[0])
