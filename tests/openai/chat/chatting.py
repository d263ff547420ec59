"""Models for tests of chat completions, and the adapter's functions by shorter names."""

from dataclasses import replace
from typing import Any

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.protocol import ROOM
from tests.text.cards import CHAT_TEMPLATE, card

ask, whole, streamed = CHATS.answer, CHATS.whole, CHATS.streamed
asked_of, refused = CHATS.asked, CHATS.refused
KNOWS_TOOLS = CHAT_TEMPLATE + "{% if tools %}{% endif %}"
# As Qwen's: a switch, a budget's marks, and the effort for those that know one.
THINKS = CHAT_TEMPLATE + (
    "{% if enable_thinking is defined %}[thinking={{ enable_thinking }}]{% endif %}"
    "{% if reasoning_effort %}[effort={{ reasoning_effort }}]{% endif %}"
    "{# <think></think> #}"
)


def thinker(template: str = THINKS) -> ModelCard:
    return replace(card(), chat_template=template, dialect="hermes")


def asked(body: dict[str, object], **card_fields: Any) -> list[GenerationRequest]:
    """The requests that the engine gets."""
    return asked_of(card(**{"context_length": ROOM, **card_fields}), **body)
