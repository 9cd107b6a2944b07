"""Takes the figures of a store that go with its lease."""

from __future__ import annotations

from pravega_common.services.cluster.store_load import StoreLoad
from segment_service.cache.manager import CacheManager
from segment_service.container.registry import ContainerRegistry
from segment_service.host.listener import WireServer
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.storage.measured_chunks import MeasuredChunkStorage


def load_of(
    at_ms: int,
    registry: ContainerRegistry,
    back_pressure: StoreBackPressure,
    cache: CacheManager,
    wire: WireServer,
    tier2: MeasuredChunkStorage,
    groups: ChoiceByUse,
) -> StoreLoad:
    """The figures at this moment; costs a look at each container."""
    fullest = max(groups.memory.values(), key=lambda memory: (memory.used_share, memory.used), default=None)
    return StoreLoad(
        at_ms=at_ms,
        logged_bytes=sum(container.durable_log.bytes_total for container in registry),
        read_bytes=wire.times.read_bytes,
        tier2_put_bytes=tier2.put_bytes,
        unflushed_bytes=back_pressure.bytes,
        unflushed_bytes_max=back_pressure.bytes_max,
        tier1_used_bytes=0 if fullest is None else fullest.used,
        tier1_bytes_max=0 if fullest is None else fullest.limit,
        cache_bytes=cache.storage.bytes_used,
        cache_bytes_max=cache.storage.bytes_max,
        connections=wire.connection_count,
    )
