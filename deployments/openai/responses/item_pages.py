"""A page of a list of items, as OpenAI's endpoints have it: newest first by default."""

from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import get_args

from starlette.datastructures import QueryParams
from starlette.responses import Response

from deployments.contract.errors import refused
from deployments.ingress.http.paging import index_after, page_size
from deployments.ingress.http.sse import encode
from deployments.openai.responses.schema import Includable
from deployments.store.items import StoredItem

DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 100  # items
MAX_PAGE_BYTES = 4 << 20  # of the items of a page, unless it has just one
ORDERS = ("desc", "asc")
QUERY = ("limit", "order", "after", "include")


class ItemPage:
    """The page of a list that a query asks for.

    Called with the ids and sizes of a list, it returns the indices of the items of the page: fewer
    than the query asks for where they are large.
    """

    def __init__(self, query: QueryParams) -> None:
        """Raises Refused."""
        check_include(query)
        self._query = query
        self._size = page_size(query, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        self._order = query.get("order", "desc")
        if self._order not in ORDERS:
            raise refused(f"`order` must be one of {', '.join(ORDERS)}", "order")
        self._has_more = False

    def __call__(self, listed: Sequence[tuple[str, int]]) -> Sequence[int]:
        """Raises Refused for an `after` that is not among them."""
        indexes = range(len(listed)) if self._order == "asc" else range(len(listed))[::-1]
        start = index_after([listed[index][0] for index in indexes], self._query, "after")
        sizes = accumulate(listed[index][1] for index in indexes[start : start + self._size])
        n_fitting = sum(1 for _ in takewhile(lambda n_bytes: n_bytes <= MAX_PAGE_BYTES, sizes))
        end = start + max(n_fitting, 1)
        self._has_more = end < len(listed)
        return indexes[start:end]

    def body(self, items: Sequence[StoredItem]) -> bytes:
        return list_body(items, has_more=self._has_more)


def list_body(items: Sequence[StoredItem], *, has_more: bool) -> bytes:
    ends = [encode(item.id) for item in (*items[:1], *items[-1:])] or [b'""', b'""']
    data = b",".join(item.body for item in items)
    form = b'{"object":"list","data":[%b],"first_id":%b,"last_id":%b,"has_more":%b}'
    return form % (data, ends[0], ends[-1], encode(has_more))


def json_answer(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def check_include(query: QueryParams) -> None:
    """Raises Refused for an unknown name in `include`. All that items have is always included."""
    for name in ("include", "include[]"):
        for value in query.getlist(name):
            if value not in get_args(Includable):
                raise refused(f"`include` can't be {value!r}", "include")
