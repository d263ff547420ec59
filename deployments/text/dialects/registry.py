"""All dialects by name, and the one that a chat template speaks."""

from deployments.text.dialects.dialect import Dialect
from deployments.text.dialects.generic import Generic

DIALECTS: dict[str, Dialect] = {one.name: one for one in (Generic(),)}


def dialect_of(template: str | None) -> Dialect:
    """The first, in the order of the table, that the template speaks."""
    return next(one for one in DIALECTS.values() if one.is_spoken_by(template or ""))
