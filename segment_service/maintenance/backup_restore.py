"""``store restore --from``: puts a backup into an empty Tier 1, Tier 2 and CPO.

Durable steps: a blocking mark in each container, with an identity that no log has; the objects of Tier 2; each log,
truncated to its first frame; then the marks that belong to the logs. Until its own mark every start of a container is
refused as ``DataCorruption``, and the restore can be made again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError, SegmentNotFound, UnknownOutcome
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.data_log import (
    DurableDataLog,
    LogAddress,
    frames_in_flight_max,
)
from segment_service.contracts.log_identity import identity_bytes, unknown_identity
from segment_service.contracts.segment_storage import EpochMark, LogState, blocking_high_water
from segment_service.maintenance.backup_files import (
    TIER2,
    BackupHeader,
    ContainerInBackup,
    InventoryLine,
    log_path,
    read_inventory,
    verify,
)
from segment_service.maintenance.backup_log import EffectiveLog
from segment_service.maintenance.log_reading import LogChanged, LogSource
from segment_service.maintenance.read_only import ContainerReader
from segment_service.maintenance.restore_claim import claimed
from segment_service.maintenance.store_restore import refuse_running_stores
from segment_service.maintenance.tier2_restore import LogRestart
from segment_service.storage.chunk_names import Layout
from segment_service.storage.epoch_marks import encode_mark
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.store import container_marker_prefix

BLOCKED: Final = register("maintenance.restore_backup.blocked")
OBJECT_PUT: Final = register("maintenance.restore_backup.object_put")
LOG_BEGUN: Final = register("maintenance.restore_backup.log_begun")
FRAME_WRITTEN: Final = register("maintenance.restore_backup.frame_written")
LOG_WRITTEN: Final = register("maintenance.restore_backup.log_written")
RELEASED: Final = register("maintenance.restore_backup.released")

reported_every: Final = 1_000
"""Objects between two lines of progress."""

_ONLY_EMPTY: Final = "a backup is restored into empty places, and once it is restored there is nothing left to do"


class BackupRestore:
    """Restores one backup."""

    def __init__(
        self,
        folder: Path,
        cpo: ControlPlaneOracle,
        chunks: ChunkStorage,
        source: LogSource,
        restart: LogRestart,
        clock: Clock,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._cpo = cpo
        self._chunks = chunks
        self._source = source
        self._restart = restart
        self._clock = clock
        self._progress = progress

    def verify(self) -> BackupHeader:
        """Read the whole backup; as ``backup_files.verify``."""
        return verify(self._folder)

    async def check_place(self, header: BackupHeader) -> list[ContainerInBackup]:
        """The containers that are not restored yet. ``ConfigurationError`` unless Tier 1 and 2 are empty, or have what
        a restore of this backup left that was interrupted."""
        blocked = [part for part in header.parts if await self._is_blocked(header, part)]
        if not blocked:
            async for info in self._chunks.list(""):
                raise ConfigurationError(f"Tier 2 is not empty, it has {info.name}: {_ONLY_EMPTY}")
            if await self._cpo.get_constant(CONTAINER_COUNT_KEY) is not None:
                raise ConfigurationError(f"the CPO is not empty, a cluster is registered there: {_ONLY_EMPTY}")
            for container_id in range(header.containers):
                await self._check_empty(container_id)
            return list(header.parts)
        waiting = []
        for part in header.parts:
            if part in blocked or not await self._is_restored(part):
                waiting.append(part)
        return waiting

    async def _is_restored(self, part: ContainerInBackup) -> bool:
        """Tells whether the container has its own mark.

        ``ConfigurationError`` if it has another one: it was not blocked yet when the restore was interrupted, and a
        store that was started then gave it a new log."""
        mark = await ContainerReader(self._chunks, part.container_id, self._clock).newest_mark()
        if mark is None:
            await self._check_empty(part.container_id)
            return False
        identity = bytes.fromhex(part.identity)
        if identity != unknown_identity and (mark.log is None or mark.log.identity != identity):
            raise ConfigurationError(
                f"container {part.container_id} has another log than the backup: a store was started before the "
                "restore had ended. Stop all stores, empty Tier 1, Tier 2 and the CPO, and restore again"
            )
        return True

    async def _check_empty(self, container_id: int) -> None:
        async for info in self._chunks.list(Layout(container_id).prefix):
            raise ConfigurationError(f"Tier 2 is not empty, it has {info.name}: {_ONLY_EMPTY}")
        try:
            async for entry in self._source.read(container_id):
                raise ConfigurationError(
                    f"Tier 1 is not empty, it has a log of container {container_id} ({entry.address}): {_ONLY_EMPTY}"
                )
        except LogChanged as error:
            raise ConfigurationError(f"Tier 1 is not empty, it has some of a log ({error}): {_ONLY_EMPTY}") from error

    async def carry_out(self, header: BackupHeader) -> None:
        """Restore everything that is not restored yet; made again after any interruption. ``ConfigurationError`` if a
        store runs, or the places are not empty."""
        await claimed(self._cpo, self._clock, lambda: self._carry_out(header))

    async def _carry_out(self, header: BackupHeader) -> None:
        await refuse_running_stores(self._cpo)
        waiting = await self.check_place(header)
        for part in waiting:
            if not await self._is_blocked(header, part):
                await self._put(self._blocking_name(part), _blocking_mark(header, part))
            failpoint(BLOCKED)
        if not waiting:
            return
        await self._put_objects([Layout(part.container_id).prefix for part in waiting])
        logs: list[DurableDataLog] = []
        try:
            for part in waiting:
                self._progress(f"container {part.container_id}: log")
                logs.append(await self._write_log(part))
            for part, log in zip(waiting, logs, strict=True):
                await self._release(part, log)
        finally:
            for log in logs:
                await log.close()

    # --- marks

    def _blocking_name(self, part: ContainerInBackup) -> str:
        return Layout(part.container_id).epoch(part.epoch + 1, 1)

    async def _is_blocked(self, header: BackupHeader, part: ContainerInBackup) -> bool:
        mark = await ContainerReader(self._chunks, part.container_id, self._clock).newest_mark()
        return mark is not None and mark.log is not None and mark.log.identity == _blocking_identity(header)

    async def _release(self, part: ContainerInBackup, log: DurableDataLog) -> None:
        """Leave the mark that belongs to the restored log."""
        state = LogState(bytes.fromhex(part.identity), part.last_operation, part.next_segment_id)
        storage = RollingStorage(self._chunks, part.container_id, self._clock, background=False)
        try:
            await log.check_owner()
            await storage.start(log.epoch, log.check_owner, lambda: state)
        finally:
            await storage.close()
        failpoint(RELEASED)

    # --- Tier 2

    async def _put_objects(self, prefixes: Sequence[str]) -> None:
        """Put the objects of these containers; one that is restored already may be running."""
        for count, (line, name) in enumerate(self._objects()):
            if not name.startswith((*prefixes, container_marker_prefix)):
                continue
            await self._put(name, await asyncio.to_thread((self._folder / line.name).read_bytes))
            failpoint(OBJECT_PUT)
            if count % reported_every == 0:
                self._progress(f"{count} objects")

    def _objects(self) -> Iterator[tuple[InventoryLine, str]]:
        """The objects of Tier 2 but the marks."""
        for line in read_inventory(self._folder):
            prefix, _, name = line.name.partition("/")
            if prefix == TIER2 and name.split("/")[1] != "e":
                yield line, name

    async def _put(self, name: str, data: bytes) -> None:
        """Put an object, or find it there as an interrupted restore left it."""
        try:
            found = await self._chunks.info(name)
        except SegmentNotFound:
            try:
                await self._chunks.put(name, [data])
                return
            except UnknownOutcome:
                found = await self._chunks.info(name)
        if found.length != len(data) or await self._chunks.get(name, 0, len(data)) != data:
            raise ConfigurationError(f"Tier 2 has another {name} than the backup: empty it and restore again")

    # --- Tier 1

    async def _write_log(self, part: ContainerInBackup) -> DurableDataLog:
        """Begin the log again, with the frames of the backup in it and nothing else."""
        log = await self._restart.start_over(part.container_id, part.epoch + 2)
        failpoint(LOG_BEGUN)
        try:
            effective = EffectiveLog(log_path(self._folder, part.container_id), LogAddress(*part.tier2_from))
            first: LogAddress | None = None
            in_flight: deque[asyncio.Future[LogAddress]] = deque()
            for frame in effective.frames():
                in_flight.append(log.append(frame))
                failpoint(FRAME_WRITTEN)
                if len(in_flight) == frames_in_flight_max or first is None:
                    address = await in_flight.popleft()
                    first = first or address
            while in_flight:
                await in_flight.popleft()
            if first is not None:
                await log.truncate(first)
            failpoint(LOG_WRITTEN)
        except BaseException:
            await log.close()
            raise
        return log


def _blocking_identity(header: BackupHeader) -> bytes:
    return hashlib.sha256(b"restore of " + header.backup_id.encode()).digest()[:identity_bytes]


def _blocking_mark(header: BackupHeader, part: ContainerInBackup) -> bytes:
    log = LogState(_blocking_identity(header), blocking_high_water, blocking_high_water)
    return encode_mark(EpochMark(part.epoch + 1, log))


def check_settings(header: BackupHeader, containers: int) -> None:
    """``ConfigurationError`` unless the settings are of a cluster with as many containers."""
    if header.containers != containers:
        raise ConfigurationError(
            f"store.containers = {containers}, but the backup is of a cluster with {header.containers}: set it to that"
        )
