"""Finds what earlier owners left behind in Tier 2, once per epoch, by their journals of changes.

Only segments that a journal names are looked at (segment_sweep.py), so a sweep costs what was changed shortly before
the earlier owners ended, however much there is. A container that a program without journals had comes first as a whole
(full_sweep.py); the marks of epochs say so.

A fenced owner may still change what it noted, also after a sweep. So the journals of a bounded number of earlier epochs
are kept, and their segments looked at by each of the next owners.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from pravega_common.errors import DataCorruption, Fenced, PravegaError, SegmentNotFound
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import NeededLengths, OnDamage
from segment_service.storage.change_journal import ChangeJournal
from segment_service.storage.chunk_names import ChunkId, Layout
from segment_service.storage.epoch_marks import EpochMarks
from segment_service.storage.foreign_owners import ForeignOwners
from segment_service.storage.full_sweep import FullSweep, no_segment
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.manifest_store import ManifestStore
from segment_service.storage.segment_sweep import SegmentSweep, Swept

start_delay_s = 30.0
"""How long after the start of a container its sweep begins."""

pace_s: Final = 0.005
"""Rest after each segment, so that a sweep never competes with the flushes."""

retry_delay_s = 60.0
"""Rest after a sweep that failed."""

attempts_max = 10
"""Sweeps tried in one epoch."""

kept_epochs_max: Final = 64
"""Earlier epochs with journals that each sweep looks at again: their owners may write something still."""

kept_epochs_min: Final = 3
"""Those that it looks at again however many segments they name."""

kept_ids_max: Final = 32_768
"""Segments that the other ones may name, together."""


@dataclass(slots=True)
class _Found:
    """The journals of earlier owners."""

    names: dict[int, list[str]] = field(default_factory=dict)
    """Names of the objects, by epoch."""
    segment_ids: dict[int, set[int]] = field(default_factory=dict)
    """Segments that they name, by epoch."""
    unreadable: list[str] = field(default_factory=list)

    def no_more_needed(self, left: Collection[int]) -> list[str]:
        """The names of those that a sweep was the last one for; it ``left`` these segments to another."""
        gone, known = list(self.unreadable), set[int]()
        for place, epoch in enumerate(sorted(self.names, reverse=True), start=1):
            known |= self.segment_ids[epoch]
            if not self.segment_ids[epoch].isdisjoint(left):
                continue
            if place > kept_epochs_max or (place > kept_epochs_min and len(known) > kept_ids_max):
                gone += self.names[epoch]
        return gone


class OrphanSweeper(Service):
    """Sweeps once per epoch."""

    def __init__(
        self,
        container_id: int,
        chunks: ChunkStorage,
        layout: Layout,
        garbage: GarbageCollector,
        manifests: ManifestStore,
        journal: ChangeJournal,
        owners: ForeignOwners,
        marks: EpochMarks,
        clock: Clock,
    ) -> None:
        super().__init__(f"storage-sweep-{container_id}")
        self.left_out = 0
        """Segments that the last sweep did not judge: something of them is damaged, or they are merged."""
        self.failures_total = 0
        self._garbage = garbage
        self._journal = journal
        self._marks = marks
        self._clock = clock
        self._segments = SegmentSweep(chunks, layout, garbage, manifests, journal, owners)
        self._full = FullSweep(chunks, layout, manifests, owners, self._segments, clock)

    async def on_start(self) -> None:
        self.spawn(self._run(), "sweep")

    def watch(self, needed_lengths: NeededLengths, on_damage: OnDamage) -> None:
        """As ``SegmentStorage.watch_damage``."""
        self._segments.needed_lengths = needed_lengths
        self._segments.on_damage = on_damage

    def moving(self, chunks: Collection[ChunkId]) -> AbstractContextManager[None]:
        """As ``SegmentSweep.moving``."""
        return self._segments.moving(chunks)

    async def sweep(self) -> Swept:
        """Give what is found to the garbage collector. ``MergeUnfinished`` if it has to be repeated."""
        dropped_before = self._garbage.dropped_names
        await self._segments.begin()
        try:
            found = await self._read_journals()
            swept = Swept(0, 0)
            if not self._marks.has_journals or found.unreadable:
                swept = await self._sweep_all()
            segment_ids = sorted(set().union(*found.segment_ids.values()))
            for segment_id in segment_ids:
                await self._segments.announce_missing(segment_id)
                await self._clock.sleep(pace_s)
            for segment_id in segment_ids:
                swept = swept.and_also(await self._segments.sweep(segment_id))
                await self._clock.sleep(pace_s)
        finally:
            self._segments.end()
            self.left_out = self._segments.left_out
        if self._garbage.dropped_names == dropped_before:
            self._garbage.discard_last(found.no_more_needed(self._segments.left))
        self._segments.check_complete()
        return swept

    async def _sweep_all(self) -> Swept:
        """Sweep all segments; later owners trust journals. Those that name what is damaged now are lost or were never
        written, so this epoch names it for them."""
        swept = await self._full.sweep()
        damaged = [segment_id for segment_id in self._segments.damaged if segment_id != no_segment]
        if damaged:
            async with self._journal.noted(*damaged, is_lasting=True):
                pass
        if not self._marks.has_journals:
            self._marks.has_journals = True
            await self._marks.renew()
        return swept

    async def _read_journals(self) -> _Found:
        found = _Found()
        for journal in await self._journal.earlier():
            try:
                segment_ids = await self._journal.read(journal)
            except SegmentNotFound:
                continue  # its owner deleted it
            except DataCorruption as error:
                self.log.error("all segments are swept, a journal of changes cannot be read", error=str(error))
                found.unreadable.append(journal.name)
                continue
            found.names.setdefault(journal.epoch, []).append(journal.name)
            found.segment_ids.setdefault(journal.epoch, set()).update(segment_ids)
        return found

    async def _run(self) -> None:
        await self._clock.sleep(start_delay_s)
        told = ""
        for _ in range(attempts_max):
            try:
                swept = await self.sweep()
                self.log.info("swept Tier 2", **swept._asdict(), left_out=self.left_out)
                return
            except Fenced as error:
                self.log.warning("sweep is left to the next owner", reason=str(error))
                return
            except PravegaError as error:
                self.failures_total += 1
                if str(error) != told:
                    self.log.warning("sweep failed", error=str(error))
                told = str(error)
            await self._clock.sleep(retry_delay_s)
        self.log.warning("sweep is left to the next owner", attempts=attempts_max, reason=told)
