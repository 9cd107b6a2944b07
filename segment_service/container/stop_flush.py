"""Brings everything of a container to Tier 2 before it stops, so that the next start has nothing to replay."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from pravega_common.errors import PravegaError, Unavailable
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.writer_data_source import FlushingWriter
from segment_service.durable_log.durable_log import DurableLog
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata_table.metadata_table import MetadataTable

FLUSHED: Final = register("container.stop.flushed_before_table")
TABLE_FLUSHED: Final = register("container.stop.table_before_checkpoint")


class StoppingContainer(Protocol):
    """The parts of a container that takes no more requests; all of them still run."""

    @property
    def container_id(self) -> int: ...

    @property
    def metadata(self) -> ContainerMetadata: ...

    @property
    def durable_log(self) -> DurableLog: ...

    @property
    def table(self) -> MetadataTable: ...


async def flush_at_stop(container: StoppingContainer, writer: FlushingWriter, limit_s: float) -> None:
    """Flush within ``limit_s`` seconds. What is not done then is said, and is in the log, as after a crash."""
    try:
        async with asyncio.timeout(limit_s):
            await _flush_everything(container, writer)
    except (PravegaError, TimeoutError) as error:
        structlog.get_logger(service=f"container-{container.container_id}").warning(
            "stopping before Tier 2 has everything: the next start replays the log",
            acknowledged=container.durable_log.acknowledged,
            last_operation=container.durable_log.last_durable,
            limit_s=limit_s,
            error=repr(error),
        )


async def _flush_everything(container: StoppingContainer, writer: FlushingWriter) -> None:
    """Operations to Tier 2, metadata to the table, and the log truncated at a checkpoint behind all that."""
    log = container.durable_log
    await log.barrier()
    if container.metadata.quarantine.is_holding:
        await container.table.flush()
        raise Unavailable("the operations of a segment that is damaged in Tier 2 are held back")
    await writer.flush(log.last_durable)
    failpoint(FLUSHED)
    await container.table.flush()
    failpoint(TABLE_FLUSHED)
    await log.checkpoint()
    await writer.flush(log.last_durable)
