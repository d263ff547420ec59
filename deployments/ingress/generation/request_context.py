"""The context of a request: its headers, who sends it, and what it takes of the server.

Bytes are reserved before they are read, and media are read for the model that answers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from deployments.contract.model_card import ModelCard
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.media.source import Source

ReadMedia = Callable[[Sequence[Source], ModelCard], Awaitable[PromptMedia]]


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The context of a request. For a response builder `headers` have the request's id, too.

    owner, client: as `owner_of` and `connection_of` say.
    reserve: takes bytes of the budget before they are read from a store for the request. Raises
        Refused.
    read_media: reads and decodes media of the request, for the model of the card. Raises Refused.
    """

    headers: Mapping[str, str]
    owner: str
    client: str
    reserve: Callable[[int], None]
    read_media: ReadMedia


async def reads_none(sources: Sequence[Source], card: ModelCard) -> PromptMedia:
    return NO_MEDIA
