"""The interface of whatever computes: the card of a model, and the tokens of a sequence."""

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from deployments.contract.events import TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest


class Engine(Protocol):
    """All that an ingress knows of what computes."""

    async def card(self, model: str | None) -> ModelCard:
        """None asks for the default model. Raises Refused."""
        ...

    def generate(
        self, card: ModelCard, request: GenerationRequest, is_complete: Callable[[], bool]
    ) -> AsyncGenerator[TokenEvent, None]:
        """Starts with its first step; closing it ends what it started. That counts as aborted,
        unless `is_complete` says then that all of the answer is there.

        A refusal is raised as Refused, or is an event with the reason ERROR.
        """
        ...
