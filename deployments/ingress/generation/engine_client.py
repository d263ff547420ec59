"""What an ingress needs of whatever computes: the card of a model, and the tokens of a sequence."""

from collections.abc import AsyncGenerator
from typing import Protocol

from deployments.wire import GenerationRequest, ModelCard, TokenEvent


class Engine(Protocol):
    """All that an ingress knows of what computes."""

    async def card(self, model: str | None) -> ModelCard:
        """None asks for the default model. Raises Refused."""
        ...

    def generate(
        self, card: ModelCard, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """Starts with its first step; closing it aborts what it started.

        A refusal is raised as Refused, or is an event with the reason ERROR.
        """
        ...
