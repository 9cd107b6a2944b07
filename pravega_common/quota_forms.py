"""Converts values of the service ScopeQuotas to and from protobuf messages, for client and controller."""

from __future__ import annotations

from pravega_common.model.scope_quota import DescribedQuota, ScopeQuota, ScopeUse
from pravega_common.proto import scope_quotas_pb2 as quotas_pb


def quota_to(quota: ScopeQuota) -> quotas_pb.ScopeLimits:
    return quotas_pb.ScopeLimits(
        streams=quota.streams, segments=quota.segments, bytes_in=quota.bytes_in, bytes_out=quota.bytes_out
    )


def quota_from(message: quotas_pb.ScopeLimits) -> ScopeQuota:
    """``InvalidArgument`` for a limit out of range."""
    return ScopeQuota(
        streams=message.streams if message.HasField("streams") else None,
        segments=message.segments if message.HasField("segments") else None,
        bytes_in=message.bytes_in if message.HasField("bytes_in") else None,
        bytes_out=message.bytes_out if message.HasField("bytes_out") else None,
    )


def described_quota_to(described: DescribedQuota) -> quotas_pb.GetScopeQuotaResponse:
    return quotas_pb.GetScopeQuotaResponse(
        limits=quota_to(described.quota),
        counted=described.is_counted,
        streams=described.use.streams,
        segments=described.use.segments,
    )


def described_quota_from(message: quotas_pb.GetScopeQuotaResponse) -> DescribedQuota:
    use = ScopeUse(message.streams, message.segments)
    return DescribedQuota(quota_from(message.limits), use, message.counted)
