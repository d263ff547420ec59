"""The query of an ingress to the router for each request, and the router's answer."""

from dataclasses import dataclass
from typing import NamedTuple

from deployments.contract.served_adapters import AdapterTable
from kv.arrivals import PrefixHolder

MIN_FETCHED_TOKENS = 256  # of a prefix that lies elsewhere: fewer are computed


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """The router's answer for one request; `is_up` False: the model has to be loaded first.

    version: of the replica's card.
    unloads: of the model, by operators, so far; None where the router has not said it.
    adapters: of the model, where they are others than the request knows.
    holder: another replica, which holds so much more of the prompt that it can be worth pulling.
    """

    replica_id: str | None
    is_up: bool
    version: str = ""
    unloads: int | None = None
    adapters: AdapterTable | None = None
    holder: PrefixHolder | None = None


class RoutingQuery(NamedTuple):
    """A request that needs a replica; `hashes` are of the full pages of its prompt.

    Its ids were made by the card of this version, and replicas of others refuse them.
    adapters: the version of the table that it chose its adapters from.
    """

    model: str
    hashes: tuple[bytes, ...]
    request_id: str
    session: str
    version: str
    adapters: str
