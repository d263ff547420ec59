"""The list of models and each of them, as the SDK reads them."""

import asyncio
from typing import Any

import pytest
from openai import NotFoundError

from tests.ingress.engines import ScriptedEngine, says
from tests.openai.serving import sdk, served
from tests.text.cards import card


def test_models_are_listed_and_retrieved() -> None:
    async def asks() -> tuple[Any, Any]:
        engine = ScriptedEngine(says("x"), card(), card(name="org/model"))
        async with sdk(served(engine)) as client:
            listed = await client.models.list()
            one = await client.models.retrieve("org/model")
            with pytest.raises(NotFoundError) as missing:
                await client.models.retrieve("nope")
        assert missing.value.code == "model_not_found"
        return listed, one

    listed, one = asyncio.run(asks())
    assert [model.id for model in listed.data] == ["tiny", "org/model"]
    assert one.to_dict() == {
        "id": "org/model",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "manta",
    }
