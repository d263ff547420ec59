"""The query parameters that select a page of a list: its size, and the item where it begins."""

from collections.abc import Sequence

from starlette.datastructures import QueryParams

from deployments.contract.errors import refused


def page_size(query: QueryParams, default: int, maximum: int) -> int:
    """The number of items that `limit` requests. Raises Refused."""
    text = query.get("limit", str(default))
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(maximum))
    if not is_number or not 1 <= int(text) <= maximum:
        raise refused(f"`limit` must be a number from 1 to {maximum}", "limit")
    return int(text)


def index_after(ids: Sequence[str], query: QueryParams, cursor: str) -> int:
    """The index behind the item whose id is the parameter `cursor`; 0 without the parameter.

    Of several items with that id the last counts, so that pages end. Raises Refused.
    """
    if cursor not in query:
        return 0
    found = [index for index, item_id in enumerate(ids, 1) if item_id == query[cursor]]
    if not found:
        raise refused(f"`{cursor}` must be the id of an item of the list", cursor)
    return found[-1]
