"""Quarantines segments of a container whose bytes in Tier 2 are damaged, and frees those that can be read again."""

from __future__ import annotations

from typing import Any

from tenacity import wait_fixed

from pravega_common.errors import PravegaError, SegmentDamaged, SegmentNotFound
from pravega_common.runtime.clock import Clock
from pravega_common.services.retrying import retrying
from segment_service.contracts.data_log import CheckOwner
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.segment_store import read_bytes_max
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.quarantine import DamagedRange


class DamageWatch:
    """Keeps the quarantine of one container."""

    def __init__(
        self,
        metadata: ContainerMetadata,
        storage: SegmentStorage,
        check_owner: CheckOwner,
        clock: Clock,
        log: Any,
        retry_s: float,
        recheck_s: float,
    ) -> None:
        """``retry_s``: pause between attempts to learn who owns the container; ``recheck_s``: time after which damaged
        bytes are read again."""
        self._metadata = metadata
        self._storage = storage
        self._check_owner = check_owner
        self._clock = clock
        self._log = log
        self._retry_s = retry_s
        self._recheck_s = recheck_s

    async def quarantine(self, segment_id: int, offset: int, length: int, error: SegmentDamaged) -> None:
        """Quarantine what something that works in Tier 2 found damaged; ``Fenced`` if a later owner may have changed
        what looks like damage. What a merged segment lacks, its target may have."""
        await retrying(self._clock, wait=wait_fixed(self._retry_s))(self._check_owner)
        segment = self._metadata.segments.get(segment_id)
        if segment is not None and not segment.is_merged:
            damaged = DamagedRange(segment_id, offset, length)
            self._metadata.quarantine.add_unreadable(segment_id, segment.name, damaged, str(error))
        elif segment is None:
            self._log.error(
                "a segment that is not in memory is damaged in Tier 2", segment_id=segment_id, error=str(error)
            )

    async def run(self) -> None:
        """Lift the quarantine of segments whose bytes can be read again, until cancelled. Appends nothing: a full Tier
        1 may wait for this."""
        quarantine = self._metadata.quarantine
        while True:
            await self._clock.sleep(self._recheck_s)
            for segment_id, damaged in quarantine.unreadable():
                if await self._is_whole(segment_id, damaged):
                    quarantine.remove_unreadable(segment_id, damaged)

    async def _is_whole(self, segment_id: int, damaged: DamagedRange) -> bool:
        """Whether the bytes can be read, or are not this segment's any more."""
        segment = self._metadata.segments.get(segment_id)
        if segment is None:
            return True
        end = damaged.offset + damaged.length
        start = damaged.offset
        if damaged.segment_id == segment_id:
            start = min(max(start, segment.start_offset), end)
        try:
            await self._storage.state(damaged.segment_id)  # past what is remembered of it
            for first in range(start, end, read_bytes_max):
                await self._storage.read(damaged.segment_id, first, min(read_bytes_max, end - first))
        except SegmentNotFound:
            return damaged.segment_id != segment_id
        except PravegaError:
            return False
        return True
