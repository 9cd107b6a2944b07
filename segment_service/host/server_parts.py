"""Holds what all connections of a server share."""

from __future__ import annotations

from dataclasses import dataclass

from pravega_common.runtime.clock import Clock
from segment_service.contracts.segment_store import BackPressure, SegmentStore
from segment_service.contracts.spawn import Spawn
from segment_service.host.budgets import ServerBudgets
from segment_service.host.request_processor import RequestProcessor
from segment_service.host.request_times import RequestTimes
from segment_service.host.token_check import TokenCheck
from segment_service.quotas.scope_buckets import ByteQuotas


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The store, and what stands between it and each connection."""

    store: SegmentStore
    requests: RequestProcessor
    back_pressure: BackPressure
    budgets: ServerBudgets
    quotas: ByteQuotas
    tokens: TokenCheck
    times: RequestTimes
    clock: Clock
    spawn: Spawn
