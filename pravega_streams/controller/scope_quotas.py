"""Sets and shows the quotas of scopes (scope_quotas.proto)."""

from __future__ import annotations

from pravega_common.model.scope_quota import DescribedQuota, ScopeQuota
from pravega_common.proto import scope_quotas_pb2 as pb
from pravega_common.quota_forms import described_quota_from, quota_to
from pravega_streams.controller.transport import ControllerTransport


class ScopeQuotaClient:
    """Blocking calls; each may be repeated. ``UnsupportedOperation`` on a plain Pravega, ``NotFound``."""

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def set(self, scope: str, quota: ScopeQuota) -> None:
        """Replace the whole quota: an operator's call."""
        request = pb.SetScopeQuotaRequest(scope=scope, limits=quota_to(quota))
        self._transport.scope_quotas("SetScopeQuota", request)

    def describe(self, scope: str) -> DescribedQuota:
        """The limits, and what is used of them."""
        request = pb.GetScopeQuotaRequest(scope=scope)
        return described_quota_from(self._transport.scope_quotas("GetScopeQuota", request))
