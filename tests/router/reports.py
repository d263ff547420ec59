"""Reports of replicas to the router, for tests."""

from dataclasses import replace
from typing import Any

from deployments.contract.replica_status import ReplicaReport


def report(replica_id: str = "a", **fields: Any) -> ReplicaReport:
    """The first one of a replica that holds nothing, but for these fields."""
    plain = ReplicaReport(
        application="model-m", replica_id=replica_id, epoch="1", sequence=1, snapshot=True
    )
    return replace(plain, **fields)
