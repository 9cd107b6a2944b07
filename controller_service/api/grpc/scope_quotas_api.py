"""Serves the gRPC service ``ScopeQuotas``."""

from __future__ import annotations

from typing import Any

import grpc.aio

from controller_service.workflows.scope_quota import SetScopeQuota
from pravega_common.proto import scope_quotas_pb2 as pb
from pravega_common.proto import scope_quotas_pb2_grpc as pb_grpc
from pravega_common.quota_forms import described_quota_to, quota_from


class ScopeQuotasApi(pb_grpc.ScopeQuotasServicer):
    """Errors are left to the server's error mapping."""

    def __init__(self, quota: SetScopeQuota) -> None:
        self._quota = quota

    async def SetScopeQuota(
        self, request: pb.SetScopeQuotaRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.SetScopeQuotaResponse:
        await self._quota.set(request.scope, quota_from(request.limits))
        return pb.SetScopeQuotaResponse()

    async def GetScopeQuota(
        self, request: pb.GetScopeQuotaRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.GetScopeQuotaResponse:
        return described_quota_to(await self._quota.describe(request.scope))
