"""Where a request came from and when: what its headers say that its body does not."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from deployments.ingress.generation.plan import Plan
from deployments.ingress.http.app import REQUEST_ID
from deployments.ingress.http.errors import refused

TENANT = "x-tenant-id"
LONGEST_TENANT = 1024


@dataclass(frozen=True, slots=True)
class Origin:
    """A `tenant` shares no cached prefix with another: Dynamo lets it go before `cache_salt`."""

    request_id: str = ""
    tenant: str = ""
    begun: float = field(default_factory=time.monotonic)

    def salted(self, planned: Plan) -> Plan:
        return replace(planned, cache_salt=self.tenant) if self.tenant else planned


def origin_of(headers: Mapping[str, str]) -> Origin:
    tenant = headers.get(TENANT, "")
    if len(tenant) > LONGEST_TENANT:
        raise refused(f"`{TENANT}` must have at most {LONGEST_TENANT} characters", TENANT)
    return Origin(headers.get(REQUEST_ID, ""), tenant)
