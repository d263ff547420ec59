"""A page of a list of items, as OpenAI's endpoints have it: newest first by default."""

from collections.abc import Sequence
from typing import get_args

from starlette.datastructures import QueryParams

from deployments.ingress.http.paging import index_after, page_size
from deployments.ingress.http.sse import encode
from deployments.openai.responses.schema import Includable
from deployments.store.items import StoredItem
from deployments.wire import refused

DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 100  # items
ORDERS = ("desc", "asc")
QUERY = ("limit", "order", "after", "include")


class ItemPage:
    """What a query asks for. Called with the ids of a list it says which items are of the page."""

    def __init__(self, query: QueryParams) -> None:
        """Raises Refused."""
        check_include(query)
        self._query = query
        self._size = page_size(query, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        self._order = query.get("order", "desc")
        if self._order not in ORDERS:
            raise refused(f"`order` must be one of {', '.join(ORDERS)}", "order")
        self._has_more = False

    def __call__(self, ids: Sequence[str]) -> Sequence[int]:
        """Raises Refused for an `after` that is not among them."""
        indexes = range(len(ids)) if self._order == "asc" else range(len(ids))[::-1]
        start = index_after([ids[index] for index in indexes], self._query, "after")
        self._has_more = start + self._size < len(ids)
        return indexes[start : start + self._size]

    def body(self, items: Sequence[StoredItem]) -> bytes:
        return list_body(items, has_more=self._has_more)


def list_body(items: Sequence[StoredItem], *, has_more: bool) -> bytes:
    ends = [encode(one.id) for one in (*items[:1], *items[-1:])] or [b'""', b'""']
    data = b",".join(item.body for item in items)
    form = b'{"object":"list","data":[%b],"first_id":%b,"last_id":%b,"has_more":%b}'
    return form % (data, ends[0], ends[-1], encode(has_more))


def check_include(query: QueryParams) -> None:
    """What items have is always included. Raises Refused for an unknown name."""
    for name in ("include", "include[]"):
        for value in query.getlist(name):
            if value not in get_args(Includable):
                raise refused(f"`include` can't be {value!r}", "include")
