"""Lists the models in Anthropic's form, in pages."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.datastructures import QueryParams

from deployments.ingress.fleet.cluster import Cluster, card_if_up
from deployments.ingress.http.paging import index_after, page_size
from deployments.wire import ModelStatus, refused

VERSION_HEADER = "anthropic-version"  # all of Anthropic's clients send it
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 1000  # Anthropic's


async def anthropic_page(
    cluster: Cluster, models: Sequence[ModelStatus], query: QueryParams
) -> object:
    """The page that the query selects. Raises Refused."""
    start, end = _bounds([status.name for status in models], query)
    more = start > 0 if "before_id" in query else end < len(models)
    if "active" not in (_lifecycles(query) or ["active"]):
        start, end, more = 0, 0, False  # none is deprecated or retired
    page = await asyncio.gather(*(anthropic_model(cluster, one) for one in models[start:end]))
    return {
        "data": page,
        "has_more": more,
        "first_id": models[start].name if page else None,
        "last_id": models[end - 1].name if page else None,
    }


async def anthropic_model(cluster: Cluster, status: ModelStatus) -> object:
    card = await card_if_up(cluster, status)
    created = datetime.fromtimestamp(status.created, UTC).isoformat().replace("+00:00", "Z")
    return {
        "type": "model",
        "id": status.name,
        "display_name": status.name,
        "created_at": created,
        "lifecycle": "active",
        "max_input_tokens": None if card is None else card.context_length,
    }


def _bounds(names: Sequence[str], query: QueryParams) -> tuple[int, int]:
    """The index where the page starts, and the index behind its end."""
    size = page_size(query, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    if "before_id" in query and "after_id" in query:
        raise refused("`before_id` cannot be combined with `after_id`", "before_id")
    if "before_id" in query:
        end = index_after(names, query, "before_id") - 1
        return max(0, end - size), end
    start = index_after(names, query, "after_id")
    return start, min(start + size, len(names))


def _lifecycles(query: QueryParams) -> list[str]:
    return query.getlist("lifecycle") + query.getlist("lifecycle[]")
