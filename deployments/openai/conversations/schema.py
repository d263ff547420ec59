"""The bodies of `/v1/conversations`."""

from typing import Annotated

from pydantic import Field

from deployments.ingress.http.schema import Items, Strict
from deployments.openai.fields.common import Identifier, MetadataName
from deployments.openai.responses.items import Item, ReferenceItem
from deployments.openai.responses.schema import Includable, InputItem

MAX_ITEMS = 20  # of one request

Metadata = Annotated[dict[MetadataName, Identifier], Field(max_length=16)]
NewItems = Annotated[Items[InputItem], Field(max_length=MAX_ITEMS)]


class ConversationBody(Strict):
    items: NewItems | None = None
    metadata: Metadata | None = None


class ConversationChange(Strict):
    metadata: Metadata | None


class ItemsBody(Strict):
    items: Annotated[NewItems, Field(min_length=1)]
    include: list[Includable] | None = None


def with_paths(
    items: list[Item | ReferenceItem] | None,
) -> list[tuple[str, Item | ReferenceItem]]:
    return [(f"items[{index}]", item) for index, item in enumerate(items or ())]
