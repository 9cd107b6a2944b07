"""``store doctor``: examines the data of a cluster in Tier 2 and Tier 1, and changes nothing.

Everything is read in an order in which a running store contradicts nothing: a mark and the stamp of the metadata table
before the log, which is ahead of both; manifests and chunks before the log a second time, which tells which segments
were deleted meanwhile, and the metadata table after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import ConfigurationError, DataCorruption, Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.container.log_verification import RESTORE_AGAIN
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_storage import EpochMark, LogState
from segment_service.maintenance.findings import ContainerReport, DataFinding, StoreReport
from segment_service.maintenance.index_examination import behind_record, examine_indexes
from segment_service.maintenance.log_reading import LogSource, LogSummary, summarize
from segment_service.maintenance.read_only import ContainerReader, refuse_unknown_containers
from segment_service.maintenance.segment_examination import Progress, SegmentExamination, Suspect
from segment_service.metadata.segment_record import read_record
from segment_service.metadata_table.metadata_table import id_key, name_key, stored_length
from segment_service.store import marked_container_counts

RESTORE_LOG: Final = (
    "give Tier 1 its newest copy, or the store the Tier 2 that belongs to this log (tier2.url); if Tier 1 is gone for "
    "good, stop the stores and run pravega-spark store restore"
)
RESTORE_BACKUP: Final = f"stop all stores, and {RESTORE_AGAIN}"
RESTORE_TABLE: Final = "restore the object from a copy"
RESTORE_MANIFESTS: Final = (
    "restore its manifests from a copy; if the segment was deleted shortly before Tier 1 was lost, nothing is missing"
)
RESTORE_MARK: Final = "restore the object from a copy: the container does not start without it"
START_TIER1: Final = "start the servers that are away, and run the examination again"
WHOLE_SETTINGS: Final = "change the settings that this command is given, and run the examination again"
CLUSTER_SETTINGS: Final = "use the settings of the cluster's stores"
CLUSTER_TIER2: Final = (
    "set tier2.url, here and at the stores, to the Tier 2 of the cluster; if what was there is gone, restore a backup; "
    "if the cluster's first start was interrupted, start a store"
)
START_CPO: Final = "start the CPO, and run the examination again"

names_reported_every: Final = 100_000
"""Names in the metadata table between two reports of progress."""


@dataclass(slots=True)
class _Known:
    """Holds the facts of one container that are read before its log."""

    reader: ContainerReader
    report: ContainerReport
    mark: EpochMark | None = None
    stamp: LogState | None = None
    has_table: bool = False
    is_judged: bool = True
    """Whether mark and stamp could be read, so that the log can be compared with them."""

    @property
    def has_owners(self) -> bool:
        """Whether all owners of moved chunks were announced: before the first sweep some may never have been."""
        return self.mark is not None and self.mark.has_journals


class StoreDoctor:
    """One examination of a cluster; ``examine`` may take long, and reports its progress in lines of text."""

    def __init__(
        self,
        chunks: ChunkStorage,
        logs: LogSource | None,
        clock: Clock,
        progress: Progress = lambda text: None,
        cpo: ControlPlaneOracle | None = None,
    ) -> None:
        """``logs``: ``None`` to leave Tier 1 alone. ``cpo``: knows whether a Tier 2 without a cluster should have
        one; ``None`` asks nobody."""
        self._chunks = chunks
        self._cpo = cpo
        self._logs = logs
        self._clock = clock
        self._progress = progress

    async def examine(self, containers: int, only: Sequence[int] = (), *, deep: bool = False) -> StoreReport:
        """Examine all containers, or those in ``only``. ``Unavailable`` if Tier 2 does not answer,
        ``ConfigurationError`` for a container that is not of the cluster: one that never ran is sound."""
        refuse_unknown_containers(only, containers)
        report = StoreReport([])
        marked = await marked_container_counts(self._chunks)
        if marked and marked != {str(containers)}:
            text = (
                f"store.containers = {containers}, but Tier 2 was made with {' and '.join(sorted(marked))} containers"
            )
            report.findings.append(DataFinding("cluster", text, CLUSTER_SETTINGS))
        if not marked:
            report.findings += await self._missing_cluster()
        for container_id in only or range(containers):
            self._progress(f"container {container_id}")
            report.containers.append(await self.examine_container(container_id, deep=deep))
        return report

    async def _missing_cluster(self) -> list[DataFinding]:
        """The finding that the CPO knows a cluster, which Tier 2 has no mark of: its containers would seem new."""
        if self._cpo is None:
            return []
        try:
            registered = await self._cpo.get_constant(CONTAINER_COUNT_KEY)
        except (Unavailable, ConfigurationError) as error:
            if self._logs is None:
                return []  # it may be gone together with Tier 1, which was not to be read either
            text = f"Tier 2 has no cluster, and whether it should have one cannot be told: {error}"
            return [DataFinding("server", text, START_CPO)]
        if registered is None:
            return []
        text = f"Tier 2 is empty, or another one: the CPO knows a cluster with {registered} containers, Tier 2 does not"
        return [DataFinding("cluster", text, CLUSTER_TIER2)]

    async def examine_container(self, container_id: int, *, deep: bool = False) -> ContainerReport:
        known = _Known(
            ContainerReader(self._chunks, container_id, self._clock), ContainerReport(container_id, deep=deep)
        )
        await self._read_mark(known)
        await self._read_stamp(known)
        await self._read_log(known)
        examination = SegmentExamination(known.reader, known.report, self._progress, deep=deep)
        try:
            await examination.run(with_table=known.has_table, with_owners=known.has_owners)
        except DataCorruption as error:  # the table, in the middle of it: once more without
            known.has_table = False
            known.report = _without_segments(known.report)
            known.report.add(DataFinding("table", str(error), RESTORE_TABLE))
            examination = SegmentExamination(known.reader, known.report, self._progress, deep=deep)
            await examination.run(with_table=False, with_owners=known.has_owners)
        _judge_listings(known)
        await self._judge_suspects(known, examination.suspects)
        await examine_indexes(self._chunks, known.reader, known.report, deep=deep)
        if known.has_table:
            await self._read_names(known)
        return known.report

    async def _read_mark(self, known: _Known) -> None:
        report = known.report
        try:
            known.mark = await known.reader.newest_mark()
        except DataCorruption as error:
            known.is_judged = False
            report.epoch = await known.reader.epoch_max()
            report.add(DataFinding("mark", str(error), RESTORE_MARK))
            return
        if known.mark is not None:
            report.epoch = known.mark.epoch
            if known.mark.log is not None:
                report.identity = known.mark.log.identity.hex()
                report.high_water = known.mark.log.high_water
                report.next_segment_id = known.mark.log.next_segment_id

    async def _read_stamp(self, known: _Known) -> None:
        try:
            table = await known.reader.newest_map()
        except DataCorruption as error:
            known.is_judged = False
            known.report.add(DataFinding("table", str(error), RESTORE_TABLE))
            return
        if table is not None:
            known.has_table = True
            known.stamp = table.stamp
            known.report.table_epoch = table.id.epoch
            known.report.table_high_water = table.stamp.high_water

    # --- Tier 1

    async def _read_log(self, known: _Known) -> None:
        """Read the log, and compare it with what was read of Tier 2 before."""
        report = known.report
        summary = await self._summary(known)
        if summary is None:
            return
        if summary.operations:
            report.log = summary.facts()
        if not known.is_judged:
            return
        first_object = "" if summary.operations else await self._first_object(known.reader)
        problem = summary.contradiction(report.container_id, known.mark, first_object, known.stamp)
        if problem is not None:
            is_blocked = known.mark is not None and known.mark.is_blocking
            report.add(DataFinding("log", problem, RESTORE_BACKUP if is_blocked else RESTORE_LOG))

    async def _summary(self, known: _Known) -> LogSummary | None:
        """``None``, with a finding or a note, if the log cannot be read."""
        report = known.report
        if self._logs is None:
            report.log_note = "Tier 1 was not read"
            return None
        try:
            return await summarize(self._logs, report.container_id)
        except DataCorruption as error:
            report.add(DataFinding("log", str(error), RESTORE_LOG))
        except Unavailable as error:
            report.add(DataFinding("server", str(error), START_TIER1))
        except ConfigurationError as error:
            report.add(DataFinding("server", str(error), WHOLE_SETTINGS))
        return None

    async def _first_object(self, reader: ContainerReader) -> str:
        async for info in self._chunks.list(reader.layout.prefix):
            return info.name
        return ""

    # --- segments that have less than they should, and names

    async def _judge_suspects(self, known: _Known, suspects: list[Suspect]) -> None:
        """A segment that was deleted of late is in the log as such until the metadata table has it no more."""
        gone = await self._gone(known) if suspects else set()
        for suspect in suspects:
            if suspect.segment_id not in gone:
                await self._judge(known, suspect)

    async def _gone(self, known: _Known) -> set[int]:
        """The segments that were deleted of late, as far as the log can be read."""
        if self._logs is None or any(one.kind in ("log", "server") for one in known.report.findings):
            return set()
        summary = await self._summary(known)
        return set() if summary is None else summary.gone

    async def _judge(self, known: _Known, suspect: Suspect) -> None:
        segment_id = suspect.segment_id
        needed = 0
        async with aclosing(known.reader.entries(id_key(segment_id))) as entries:
            entry = await anext(entries, None)
            if entry is not None and entry[0] == id_key(segment_id):
                needed = stored_length(entry[1])
        try:
            view = await known.reader.view(segment_id)
        except DataCorruption:
            return  # found already
        if needed > view.length and not view.is_deleted:
            text = (
                f"segment {segment_id}: the manifests that are there list {view.length} bytes, the metadata table says "
                f"that Tier 2 had {needed}"
            )
            known.report.orphans = None
            known.report.add(DataFinding("manifest", text, RESTORE_MANIFESTS, segment_id))

    async def _read_names(self, known: _Known) -> None:
        """Read every record of the table, compare it with its segment's attribute index, and name the segments of the
        findings."""
        report, behind = known.report, dict[int, DataFinding]()
        names = {one.segment_id: "" for one in report.findings if one.segment_id is not None}
        try:
            async for key, value in known.reader.entries(name_key("")):
                report.table_entries += 1
                try:
                    segment = read_record(value)
                except DataCorruption as error:
                    text = f"the record of {key[1:].decode(errors='replace')} in the metadata table: {error}"
                    report.add(DataFinding("name", text, RESTORE_TABLE))
                    continue
                if (found := await behind_record(known.reader, segment)) is not None:
                    behind[segment.segment_id] = found
                if segment.segment_id in names or found is not None:
                    names[segment.segment_id] = segment.name
                if report.table_entries % names_reported_every == 0:
                    self._progress(f"container {report.container_id}: {report.table_entries} names")
        except DataCorruption as error:
            report.add(DataFinding("table", str(error), RESTORE_TABLE))
        for segment_id in sorted(behind.keys() - (await self._gone(known) if behind else set())):
            report.add(behind[segment_id])
        for finding in report.findings:
            finding.segment = names.get(finding.segment_id or 0, "")


def _judge_listings(known: _Known) -> None:
    """Add the finding of a damaged map of shared objects, where segments were looked at by their ids in the table."""
    damage = known.reader.chunks.damage
    if damage:
        known.report.orphans = None
        text = f"shared objects: {damage}; segments that are only there and not in the metadata table were not examined"
        known.report.add(DataFinding("manifest", text, RESTORE_TABLE))


def _without_segments(report: ContainerReport) -> ContainerReport:
    """The report as it was before its segments were examined."""
    report.segments = report.chunks = report.length = 0
    report.orphans = 0
    report.findings = [one for one in report.findings if one.segment_id is None]
    return report
