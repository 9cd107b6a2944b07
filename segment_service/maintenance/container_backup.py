"""Copies one container while its owner changes it: its log, and what Tier 2 has of it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Final

import structlog

from pravega_common.errors import ConfigurationError, DataCorruption, SegmentNotFound, Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended
from segment_service.contracts.chunk_storage import ChunkStorage, names_per_deletion_max
from segment_service.contracts.segment_storage import EpochMark, LogState
from segment_service.contracts.table_maps import segment_of_attribute_map, segment_of_table_map
from segment_service.maintenance.backup_files import ContainerInBackup, log_path
from segment_service.maintenance.backup_log import CopiedLog, LogContents, LogGap, nothing_read
from segment_service.maintenance.log_reading import LogSource
from segment_service.maintenance.read_only import ContainerReader
from segment_service.metadata_table.metadata_table import map_name as metadata_map
from segment_service.sorted_runs.map_manifest import MapManifest
from segment_service.storage.chunk_names import Layout, MapObjectId
from segment_service.storage.epoch_marks import decode_mark
from segment_service.storage.segment_view import SegmentView
from segment_service.storage.shared_objects import shared_map_name

LOG_BEGUN: Final = register("maintenance.backup.log_begun")
MARK_COPIED: Final = register("maintenance.backup.mark_copied")
TABLE_COPIED: Final = register("maintenance.backup.table_copied")
INDEX_COPIED: Final = register("maintenance.backup.index_copied")
SEGMENT_COPIED: Final = register("maintenance.backup.segment_copied")
MANIFESTS_COPIED: Final = register("maintenance.backup.manifests_copied")

chunks_at_once: Final = 4
"""Objects, of some 16 MiB at most, that are copied side by side."""
attempts_max: Final = 10
"""How often a segment, or a map, is looked at again because an object was replaced meanwhile."""
rounds_max: Final = 10
"""Rounds in which targets of merges are read again."""
passes_max: Final = 20
"""How often a container's manifests are listed again because its log was truncated beyond the copy meanwhile. A pass
reads what changed since the one before, so that passes become shorter."""
object_bytes_max: Final = 256 * 1024 * 1024
"""Bytes of the largest object that is copied; owners write 16 MiB and some checksums."""

Step = Callable[[str], Awaitable[None]]
"""Called between two durable steps: says how far the backup is, and follows the logs from time to time."""


class ContainerBackup:
    """One container's part of a backup."""

    def __init__(
        self, container_id: int, chunks: ChunkStorage, logs: LogSource, folder: Path, copies: ChunkStorage, clock: Clock
    ) -> None:
        """``chunks`` is Tier 2, which is only read; ``copies`` keeps its objects in the backup, where those that lie in
        the map ``shared`` are objects of their own."""
        self.container_id = container_id
        self.log = CopiedLog(logs, container_id, log_path(folder, container_id))
        self.layout = Layout(container_id)
        self.damaged: set[int] = set()
        """Segments that are damaged in Tier 2, and are so in the backup."""
        self.damaged_indexes: set[int] = set()
        """Segments whose attribute index is damaged in Tier 2, and is so in the backup."""
        self._copies = copies
        self._reader = ContainerReader(chunks, container_id, clock)
        self._chunks = self._reader.chunks
        self._copied = ContainerReader(copies, container_id, clock)
        self._log = structlog.get_logger()
        self._settled: set[int] = set()
        """Sources that are gone in the copy, and whose targets were read after that."""
        self._mark: EpochMark | None = None
        self._stamp: LogState | None = None
        self._tier2_from = nothing_read

    async def copy_chunks(self, step: Step) -> None:
        """Copy the chunks that are there: most of the bytes, while nothing has to fit to them yet."""
        waiting: list[str] = []
        async for info in self._chunks.list(self.layout.chunks):
            waiting.append(info.name)
            if len(waiting) == chunks_at_once:
                await self._copy_together(waiting)
                waiting.clear()
                await step(f"container {self.container_id}: chunks")
        await self._copy_together(waiting)

    async def copy_state(self, step: Step) -> None:
        """Copy the log, and everything in Tier 2 that changes. ``LogGap`` if the log is truncated too fast."""
        for attempt in range(passes_max):
            try:
                await self._copy_state(step)
                return
            except LogGap:
                if attempt == passes_max - 1:
                    raise

    async def follow(self) -> None:
        """Copy what the log has more. ``LogGap`` if its copy must begin again."""
        await self.log.follow()

    async def _copy_state(self, step: Step) -> None:
        self._settled.clear()
        await self.log.begin()
        self._tier2_from = self.log.end
        failpoint(LOG_BEGUN)
        await step(f"container {self.container_id}: log")
        await self._copy_mark()
        failpoint(MARK_COPIED)
        await step(f"container {self.container_id}: mark")
        await self._copy_table()
        failpoint(TABLE_COPIED)
        await step(f"container {self.container_id}: metadata table")
        await self._copy_indexes(step)
        await self._copy_segments(step)
        failpoint(MANIFESTS_COPIED)
        await self._settle_merges(step)
        await self.log.follow()

    # --- marks and maps

    async def _copy_mark(self) -> None:
        for _ in range(attempts_max):
            newest = max([info.name async for info in self._chunks.list(self.layout.epochs)], default="")
            if not newest:
                self._mark = None
                return
            try:
                data = await self._copy(newest)
            except SegmentNotFound:
                continue
            self._mark = decode_mark(data, newest, self.layout.parse_epoch(newest))
            await self._keep_only(self.layout.epochs, {newest})
            return
        raise Unavailable(f"the marks below {self.layout.epochs} keep vanishing while they are copied: try again")

    async def _copy_table(self) -> None:
        """Copy the metadata table."""
        for name in await self._reader.map_names():
            if name not in (metadata_map, shared_map_name) and not _is_segment_map(name):
                raise DataCorruption(f"{self.layout.maps}{name} in Tier 2 is a map that this program does not know")
        manifest = await self._copy_map(metadata_map)
        self._stamp = None if manifest is None else manifest.stamp

    async def _copy_indexes(self, step: Step) -> None:
        """Copy the maps of segments. The copy has no key index of a table that is gone, damaged, or replaced too fast:
        a store makes it again of the table's log, which is copied with its segment. Nothing else has the attributes
        of writers, so that they are copied as they are, damage included: without an index a store would take a writer
        for a new one. The log was copied first, so that it has what left it since."""
        self.damaged_indexes.clear()
        names = {name for name in await self._reader.map_names() if _is_segment_map(name)}
        for name in sorted(names.union(await self._copied.map_names()) - {metadata_map}):
            try:
                manifest = await self._copy_map(name) if name in names else None
            except (DataCorruption, Unavailable) as error:
                writers_of = segment_of_attribute_map(name)
                if writers_of is not None:
                    if isinstance(error, Unavailable):
                        raise
                    await self._copy_damaged_index(name)
                    self.damaged_indexes.add(writers_of)
                    continue
                self._log.warning("a table's index is not in the backup", container=self.container_id, error=str(error))
                manifest = None
            if manifest is None:
                await self._keep_only(self.layout.map_manifests(name), set())
            failpoint(INDEX_COPIED)
            await step(f"container {self.container_id}: {name}")

    async def _copy_map(self, name: str) -> MapManifest | None:
        """Copy the newest state of a map: its runs, then its manifest. ``None`` if it has none, or was removed;
        ``DataCorruption`` if one of its files is lost."""
        missing, before = "", None
        for _ in range(attempts_max):
            manifest = await self._reader.newest_map(name)
            if manifest is None:
                return None
            files = [MapObjectId(file.epoch, file.counter) for run in manifest.runs for file in run.files]
            newest = self.layout.map_manifest(name, manifest.id)
            try:
                await self._copy_together([self.layout.map_file(name, file) for file in files], must_exist=True)
                await self._copy(newest)
            except SegmentNotFound as error:
                if manifest.id == before:
                    raise DataCorruption(f"the map {name} has lost a file in Tier 2: {error}") from error
                missing, before = str(error), manifest.id
                continue
            await self._keep_only(self.layout.map_manifests(name), {newest})
            return manifest
        raise Unavailable(f"the map {name} keeps being replaced while it is copied ({missing}): try again")

    async def _copy_damaged_index(self, name: str) -> None:
        """Copy what is left of an attribute index, so that it refuses the same writers in the copy as in the store."""
        manifests = self.layout.map_manifests(name)
        found = {info.name async for info in self._chunks.list(manifests)}
        files = {info.name async for info in self._chunks.list(self.layout.map_files(name))}
        await self._copy_together(files)
        await self._copy_together(found)
        await self._keep_only(manifests, found)

    # --- segments

    async def _copy_segments(self, step: Step) -> None:
        """Copy every segment that is not as an earlier pass copied it; those that are gone leave the copy.

        The listing has the map of shared objects as of its beginning and each object as of its place. So a manifest
        that became an entry meanwhile is missing there, and what it replaced may look like the newest one: what an
        earlier pass had so is listed once more, and what must be there and is not is looked for by its id.
        """
        before = await self._reader.chunks.manifest()
        if await self._copy_listed(step) and await self._reader.chunks.manifest() != before:
            await self._copy_listed(step)
        async for segment_id in self._ids_in_tier2():
            if not await self._is_copied(segment_id):
                await self._copy_one(segment_id, step)

    async def _copy_listed(self, step: Step) -> bool:
        """Copy the segments whose newest manifest is not the one of the copy. Whether there were others."""
        has_same = False
        copied = self._copied.newest_manifests()
        known = await anext(copied, None)
        async for newest in self._reader.newest_manifests():
            while known is not None and known.segment_id < newest.segment_id:
                await self._copy_one(known.segment_id, step)
                known = await anext(copied, None)
            is_same = known == newest
            has_same |= is_same
            if known is not None and known.segment_id == newest.segment_id:
                known = await anext(copied, None)
            if not is_same:
                await self._copy_one(newest.segment_id, step)
        while known is not None:
            await self._copy_one(known.segment_id, step)
            known = await anext(copied, None)
        return has_same

    async def _ids_in_tier2(self) -> AsyncIterator[int]:
        """The segments that must have bytes in Tier 2, as the copied metadata table and the copied log say; also some
        that are gone."""
        try:
            async for segment_id, length in self._copied.stored_lengths():
                if length:
                    yield segment_id
        except DataCorruption as error:
            self._log.warning("the metadata table is damaged", container=self.container_id, error=str(error))
        for segment_id in sorted(self.log.watch.in_tier2):
            yield segment_id

    async def _is_copied(self, segment_id: int) -> bool:
        async for _ in self._copies.list(self.layout.manifests_of(segment_id)):
            return True
        return False

    async def _copy_one(self, segment_id: int, step: Step) -> None:
        await self._copy_segment(segment_id)
        failpoint(SEGMENT_COPIED)
        await step(f"container {self.container_id}: segment {segment_id}")

    async def _copy_segment(self, segment_id: int) -> SegmentView | None:
        """Copy the newest state of a segment: its chunks, then its manifests. One that is gone leaves the copy.
        ``None`` if it is damaged."""
        self._settled.discard(segment_id)
        self.damaged.discard(segment_id)
        before = None
        for _ in range(attempts_max):
            view = await self._reader.view_if_sound(segment_id)
            if view is None or view.is_dangling:
                break
            live = {self.layout.manifest(name) for name in (view.name, view.base_name) if name is not None}
            try:
                chunks = {self.layout.chunk(chunk.id) for chunk in view.chunks}
                await self._copy_together(chunks, must_exist=not view.is_deleted)  # a tombstone's go before it does
                for name in live:
                    await self._copy(name)
            except (SegmentNotFound, DataCorruption):
                if view.name == before:
                    break  # not replaced, but lost or damaged
                before = view.name
                continue
            await self._keep_only(self.layout.manifests_of(segment_id), live)
            return view
        await self._copy_damaged(segment_id)
        return None

    async def _keep_only(self, prefix: str, live: set[str]) -> None:
        """Remove what was copied of an earlier state: it must not count when the newer one is gone."""
        replaced = [info.name async for info in self._copies.list(prefix) if info.name not in live]
        for first in range(0, len(replaced), names_per_deletion_max):
            for error in (await self._copies.delete_all(replaced[first : first + names_per_deletion_max])).values():
                raise error

    async def _copy_damaged(self, segment_id: int) -> None:
        """Copy what is left of a segment, so that it is quarantined in the copy as it is in the store."""
        self.damaged.add(segment_id)
        manifests = self.layout.manifests_of(segment_id)
        try:
            found = {info.name async for info in self._chunks.list(manifests)}
        except DataCorruption:
            found = {info.name async for info in self._chunks.objects.list(manifests)}
        await self._copy_together(found)
        await self._keep_only(manifests, found)

    # --- merges

    async def _settle_merges(self, step: Step) -> None:
        """Let no source be gone in the copy whose target was read before it had the bytes.

        A source that was seen gone was merged before, so the log has the merge by now. What is merged later is of no
        concern, but for the segments that are read again here.
        """
        concerned: set[int] | None = None
        for _ in range(rounds_max):
            await self.log.follow()
            contents = LogContents.of(self.log.effective(self._tier2_from))
            if concerned is not None:
                contents.merges = {key: merge for key, merge in contents.merges.items() if key in concerned}
            behind = await self._targets_behind(contents)
            if not behind:
                return
            concerned = set(behind)
            for target_id in behind:
                await self._copy_one(target_id, step)
        raise Unavailable(f"container {self.container_id}: segments keep being merged while they are copied: try again")

    async def _targets_behind(self, contents: LogContents) -> list[int]:
        """Targets that are alive and lack bytes in the copy, of sources that are gone in it."""
        behind: dict[int, None] = {}
        for source_id, merge in contents.merges.items():
            target_id = merge.segment_id
            if target_id in contents.deleted or target_id in self.damaged or source_id in self._settled:
                continue
            source = await self._copied.view_if_sound(source_id)
            target = await self._copied.view_if_sound(target_id)
            if source is None or target is None or source.exists or target.is_deleted:
                continue
            if target.length < merge.offset + merge.length:
                behind[target_id] = None
                self._settled.add(source_id)
        return list(behind)

    # --- objects

    async def _copy_together(self, names: Collection[str], *, must_exist: bool = False) -> None:
        """Copy chunks, a few at a time. If they must be there, ``SegmentNotFound`` for one that is missing, and
        ``DataCorruption`` for one that lies where the map of shared objects is damaged."""
        waiting = iter(names)
        while some := list(itertools.islice(waiting, chunks_at_once)):
            await all_ended(self._copy_chunk(name, must_exist=must_exist) for name in some)

    async def _copy_chunk(self, name: str, *, must_exist: bool) -> None:
        if await _exists(self._copies, name):
            return
        try:
            await self._copy(name)
        except (SegmentNotFound, DataCorruption):
            if must_exist:
                raise

    async def _copy(self, name: str) -> bytes:
        """Copy one object, and return its bytes."""
        length = (await self._chunks.info(name)).length
        if length > object_bytes_max:
            raise ConfigurationError(f"{name} in Tier 2 has {length} bytes, more than a backup holds in memory")
        data = await self._chunks.get(name, 0, length)
        if not await _exists(self._copies, name):
            await self._copies.put(name, [data])
        return data

    # --- the result

    async def part(self) -> ContainerInBackup | None:
        """The container's line of the inventory; ``None`` if it never ran. ``DataCorruption`` if the log and Tier 2
        do not belong together: neither would a restored container start, nor does this one at its next start."""
        contents = LogContents.of(self.log.effective(self._tier2_from))
        summary = contents.summary
        first = ""
        async for info in self._copies.list(self.layout.prefix):
            first = info.name
            break
        if not summary.operations and not first:
            return None
        problem = summary.contradiction(self.container_id, self._mark, first, self._stamp)
        if problem is not None:
            raise DataCorruption(problem)
        return ContainerInBackup(
            self.container_id,
            max(summary.epoch, self._mark.epoch if self._mark is not None else 0),
            summary.identity.hex(),
            summary.last_operation,
            summary.next_segment_id,
            (self._tier2_from.plog_number, self._tier2_from.offset),
            summary.operations,
        )


async def _exists(chunks: ChunkStorage, name: str) -> bool:
    try:
        await chunks.info(name)
    except SegmentNotFound:
        return False
    return True


def _is_segment_map(name: str) -> bool:
    """Whether it is a map that segments have."""
    return segment_of_table_map(name) is not None or segment_of_attribute_map(name) is not None
