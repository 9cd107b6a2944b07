"""``store backup``: copies a cluster into a folder while its stores run, and stops or fences nobody."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError, Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.private_files import private_mode
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.maintenance.backup_files import (
    INVENTORY,
    TIER2,
    UNFINISHED,
    BackupHeader,
    ContainerInBackup,
    write_inventory,
)
from segment_service.maintenance.backup_log import LogGap
from segment_service.maintenance.container_backup import ContainerBackup
from segment_service.maintenance.log_reading import LogSource
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.store import container_marker_prefix, marked_container_counts

CHUNKS_COPIED: Final = register("maintenance.backup.chunks_copied")
LOGS_COPIED: Final = register("maintenance.backup.logs_copied")
INVENTORY_WRITTEN: Final = register("maintenance.backup.inventory_written")

follow_every_s_default: Final = 2.0
"""Time between two looks at the ends of the logs while Tier 2 is copied, as a log is truncated at checkpoints, and
between two lines of progress."""
ends_rounds_max: Final = 200
"""Readings of the ends of all logs, until nothing but events comes to any from one to the next."""
ends_pause_s: Final = 0.02
"""Time between two of them."""


@dataclass(frozen=True, slots=True)
class BackupOutcome:
    """A finished backup."""

    header: BackupHeader
    files: int
    damaged: tuple[tuple[int, int], ...] = ()
    """Containers and segments that are damaged in Tier 2, and so in the backup."""
    damaged_indexes: tuple[tuple[int, int], ...] = ()
    """Containers and segments whose attribute index is damaged in Tier 2, and so in the backup."""


def claim_place(folder: Path) -> None:
    """Make the folder this backup's own; ``ConfigurationError`` unless it is empty, or not there yet: then it is made
    for its user alone, as it has all events of the cluster."""
    check_place(folder)
    folder.mkdir(mode=private_mode, parents=True, exist_ok=True)
    try:
        (folder / UNFINISHED).touch(exist_ok=False)
    except FileExistsError:  # since the check
        raise ConfigurationError(f"another backup was begun in {folder}; give each a folder of its own") from None


def check_place(folder: Path) -> None:
    """``ConfigurationError`` unless the folder is empty, or not there yet."""
    if not folder.exists():
        return
    if (folder / INVENTORY).exists():
        raise ConfigurationError(f"{folder} is a backup already; give each backup a folder of its own")
    if not folder.is_dir() or any(folder.iterdir()):
        raise ConfigurationError(
            f"{folder} is not empty and no backup: if one was interrupted there, remove it and begin again"
        )


class StoreBackup:
    """Makes one backup in an empty folder."""

    def __init__(
        self,
        chunks: ChunkStorage,
        logs: LogSource,
        folder: Path,
        clock: Clock,
        progress: Callable[[str], None] = lambda _: None,
        *,
        follow_every_s: float = follow_every_s_default,
        sync: bool = True,
    ) -> None:
        self._chunks = chunks
        self._folder = folder.absolute()
        self._clock = clock
        self._progress = progress
        self._follow_every_s = follow_every_s
        self._copies = FilesystemChunkStorage(self._folder / TIER2, sync=sync)
        self._logs = logs
        self._running: list[ContainerBackup] = []
        self._copying: ContainerBackup | None = None
        self._torn: set[int] = set()
        """Containers whose log was truncated beyond its copy; they are copied again."""
        self._followed_at = clock.monotonic_s()

    async def run(self, cluster: str, containers: int) -> BackupOutcome:
        """Copy everything. ``ConfigurationError`` for settings or a folder that do not fit, ``Unavailable`` if Tier 1
        or 2 does not answer or changes too fast, ``DataCorruption`` if a log does not belong to its Tier 2."""
        marked = await marked_container_counts(self._chunks)
        if marked != {str(containers)}:
            raise ConfigurationError(
                f"store.containers = {containers}, but Tier 2 was made with {' and '.join(sorted(marked)) or 'no'} "
                "containers: use the settings of the cluster's stores"
            )
        claim_place(self._folder)
        begun_ms = self._clock.wall_ms()
        await self._copies.start()
        try:
            await self._copy_marker()
            all_of = [
                ContainerBackup(one, self._chunks, self._logs, self._folder, self._copies, self._clock)
                for one in range(containers)
            ]
            await self._copy(all_of)
            parts = [part for one in all_of if (part := await one.part()) is not None]
        finally:
            for container in self._running:
                container.log.close()
            await self._copies.close()
        return self._finish(cluster, begun_ms, all_of, parts)

    def _finish(
        self,
        cluster: str,
        begun_ms: int,
        containers: Sequence[ContainerBackup],
        parts: Sequence[ContainerInBackup],
    ) -> BackupOutcome:
        header = BackupHeader(secrets.token_hex(16), cluster, begun_ms, len(containers), tuple(parts))
        self._progress("inventory")
        files = write_inventory(self._folder, header)
        failpoint(INVENTORY_WRITTEN)
        damaged = tuple((one.container_id, segment) for one in containers for segment in sorted(one.damaged))
        indexes = tuple((one.container_id, segment) for one in containers for segment in sorted(one.damaged_indexes))
        return BackupOutcome(header, files, damaged, indexes)

    async def _copy_marker(self) -> None:
        async for info in self._chunks.list(container_marker_prefix):
            await self._copies.put(info.name, [await self._chunks.get(info.name, 0, info.length)])

    async def _copy(self, containers: Sequence[ContainerBackup]) -> None:
        for container in containers:
            await container.copy_chunks(self._step)
        failpoint(CHUNKS_COPIED)
        for container in containers:
            self._running.append(container)
            await self._copy_state(container)
        for _ in range(ends_rounds_max):
            if await self._is_one_moment(containers):
                failpoint(LOGS_COPIED)
                return
            await self._clock.sleep(ends_pause_s)
        raise Unavailable(
            f"in {ends_rounds_max} readings of the ends of all logs there was none beside which nothing but events was "
            "written: try again when fewer streams, transactions and reader groups change"
        )

    async def _is_one_moment(self, containers: Sequence[ContainerBackup]) -> bool:
        """Read the ends of all logs. Whether nothing but events came to any since the reading before."""
        before = [container.log.watch.changes for container in containers]
        for container in containers:
            await self._follow(container)
        for container in [one for one in containers if one.container_id in self._torn]:
            await self._copy_state(container)
            before = []
        return len(containers) == 1 or before == [container.log.watch.changes for container in containers]

    async def _copy_state(self, container: ContainerBackup) -> None:
        self._copying = container
        try:
            await container.copy_state(self._step)
        except LogGap as error:
            raise Unavailable(f"{error}, again and again: try again when less is going on") from error
        self._copying = None
        self._torn.discard(container.container_id)

    async def _follow(self, container: ContainerBackup) -> None:
        try:
            await container.follow()
        except LogGap:
            if container is self._copying:
                raise
            self._torn.add(container.container_id)

    async def _step(self, text: str) -> None:
        if self._clock.monotonic_s() - self._followed_at < self._follow_every_s:
            return
        self._progress(text)
        for container in self._running:
            if container is self._copying or container.container_id not in self._torn:
                await self._follow(container)
        self._followed_at = self._clock.monotonic_s()
