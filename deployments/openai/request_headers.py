"""The headers of a request that generation needs: its id and its tenant."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from deployments.contract.errors import refused
from deployments.ingress.generation.plan import PlanOptions
from deployments.ingress.http.app import REQUEST_ID

TENANT = "x-tenant-id"
MAX_TENANT_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """Tenants share no cached prefixes. As in Dynamo, `tenant` goes before `cache_salt`."""

    request_id: str = ""
    tenant: str = ""
    received_at: float = field(default_factory=time.monotonic)

    def salted(self, options: PlanOptions) -> PlanOptions:
        return replace(options, cache_salt=self.tenant) if self.tenant else options


def read_headers(headers: Mapping[str, str]) -> RequestHeaders:
    tenant = headers.get(TENANT, "")
    if len(tenant) > MAX_TENANT_CHARACTERS:
        raise refused(f"`{TENANT}` must have at most {MAX_TENANT_CHARACTERS} characters", TENANT)
    return RequestHeaders(headers.get(REQUEST_ID, ""), tenant)
