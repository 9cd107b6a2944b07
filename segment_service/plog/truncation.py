"""Truncates a log stream: first the record of where it begins, then the plogs wholly below that."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import InvalidArgument
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.metadata_manager import MetadataManager
from segment_service.plog.metadata_records import TruncateRecord
from segment_service.plog.persistence_group import PersistenceClient
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_supply import PlogSupply

TRUNCATE_RECORDED: Final = register("plog.stream.truncate_recorded")
TRUNCATE_DELETED: Final = register("plog.stream.truncate_deleted")


class PlogTruncation:
    """The truncations of one log stream at one epoch."""

    def __init__(
        self, stream: str, container_id: int, manager: MetadataManager, client: PersistenceClient, supply: PlogSupply
    ) -> None:
        self._stream = stream
        self._container_id = container_id
        self._manager = manager
        self._client = client
        self._supply = supply
        self._dropped: list[PlogId] = []
        """Truncated away by record, not yet deleted."""

    async def record(self, up_to: LogAddress, acked_last: LogAddress | None) -> None:
        """Make it durable that the stream begins at ``up_to``; ``InvalidArgument`` if no acknowledged frame that
        counts begins there."""
        state = self._manager.state.streams[self._stream]
        record = next((plog for plog in state.plogs if plog.number == up_to.plog_number), None)
        below = state.truncated_at is not None and up_to < state.truncated_at
        found = record is not None and not below and acked_last is not None and up_to <= acked_last
        if found and record is not None and up_to.offset > 0:
            found = await self._client.group_of(record.plog_id).has_entry_at(record.plog_id, up_to.offset)
        if not found:
            raise InvalidArgument(f"container {self._container_id}: no frame begins at {up_to}; cannot truncate there")
        await self._manager.record(TruncateRecord(self._stream, up_to))
        self._dropped += [plog.plog_id for plog in state.plogs if plog.number < up_to.plog_number]

    async def delete_dropped(self) -> None:
        """Delete the plogs that the records dropped."""
        failpoint(TRUNCATE_RECORDED)
        dropped, self._dropped = self._dropped, []
        for plog_id in dropped:
            await self._supply.free(plog_id)
        failpoint(TRUNCATE_DELETED)
