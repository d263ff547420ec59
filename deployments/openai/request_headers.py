"""The headers of a request that generation needs: its id and its tenant."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from deployments.contract.errors import refused
from deployments.ingress.generation.plan import Plan
from deployments.ingress.http.app import REQUEST_ID

TENANT = "x-tenant-id"
MAX_TENANT_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """Tenants share no cached prefixes. As in Dynamo, `tenant` goes before `cache_salt`."""

    request_id: str = ""
    tenant: str = ""
    received_at: float = field(default_factory=time.monotonic)

    def salted(self, planned: Plan) -> Plan:
        """A salt that nobody else has stays: the prompt is to be found by nobody."""
        if not self.tenant or planned.has_own_salt:
            return planned
        return replace(planned, cache_salt=self.tenant)


def read_headers(headers: Mapping[str, str]) -> RequestHeaders:
    tenant = headers.get(TENANT, "")
    if len(tenant) > MAX_TENANT_CHARACTERS:
        raise refused(f"`{TENANT}` must have at most {MAX_TENANT_CHARACTERS} characters", TENANT)
    return RequestHeaders(headers.get(REQUEST_ID, ""), tenant)
