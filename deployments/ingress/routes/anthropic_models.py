"""Lists the models in Anthropic's form, in pages."""

from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.datastructures import QueryParams

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelStatus
from deployments.ingress.fleet.cluster import Cluster, ServedModel, cards_of, served_models
from deployments.ingress.generation.abilities import generates
from deployments.ingress.http.paging import index_after, page_size

VERSION_HEADER = "anthropic-version"  # all of Anthropic's clients send it
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 1000  # Anthropic's


async def anthropic_page(
    cluster: Cluster, statuses: Sequence[ModelStatus], query: QueryParams
) -> object:
    """The page that the query selects. Models that are known to generate nothing are not listed, as
    Anthropic's clients can't ask them. Raises Refused."""
    models = served_models(statuses)
    cards = await cards_of(cluster, models)
    models = [model for model in models if _generates(cards[model.status.name])]
    start, end = _bounds([model.id for model in models], query)
    more = start > 0 if "before_id" in query else end < len(models)
    if "active" not in (_lifecycles(query) or ["active"]):
        start, end, more = 0, 0, False  # none is deprecated or retired
    page = models[start:end]
    return {
        "data": [_model(model, cards[model.status.name]) for model in page],
        "has_more": more,
        "first_id": models[start].id if page else None,
        "last_id": models[end - 1].id if page else None,
    }


async def anthropic_model(cluster: Cluster, model: ServedModel) -> object:
    cards = await cards_of(cluster, [model])
    return _model(model, cards[model.status.name])


def _generates(card: ModelCard | None) -> bool:
    return card is None or generates(card)


def _model(model: ServedModel, card: ModelCard | None) -> object:
    created = datetime.fromtimestamp(model.status.created, UTC).isoformat().replace("+00:00", "Z")
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
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
