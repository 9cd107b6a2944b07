"""Examines the key indexes of large tables and the attribute indexes in one container, beside its owner."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import DataCorruption, SegmentNotFound, Unavailable
from segment_service.attribute_index.entries import decode_value
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.table_maps import attribute_map_name, segment_of_attribute_map, segment_of_table_map
from segment_service.maintenance.findings import ContainerReport, DataFinding
from segment_service.maintenance.read_only import ContainerReader
from segment_service.metadata_table.metadata_table import map_name as metadata_map
from segment_service.storage.chunk_names import MapObjectId
from segment_service.storage.shared_objects import shared_map_name
from segment_service.tables.index_entry import TOTALS_KEY, decode_entry, decode_totals

RESTORE_WRITERS: Final = (
    "restore the object from a copy; without one, seal the segment: some writers cannot go on in it"
)

looks_max: Final = 8
"""How often an index that keeps changing is looked at; it is well then, since its owner reads and writes it."""


async def examine_indexes(
    chunks: ChunkStorage, reader: ContainerReader, report: ContainerReport, *, deep: bool
) -> None:
    """Look whether the files of all indexes are there, with their lengths; ``deep``: read every entry."""
    for name in await reader.map_names():
        table_id, writers_id = segment_of_table_map(name), segment_of_attribute_map(name)
        place = f"{reader.layout.maps}{name}/"
        if table_id is None and writers_id is None:
            if name not in (metadata_map, shared_map_name):
                remedy = "run the version of this program that wrote it"
                report.add(DataFinding("index", f"{place} is a map that this program does not know", remedy))
            continue
        try:
            is_there = await _is_there(chunks, reader, name)
            if table_id is not None:
                report.table_indexes += is_there
                if deep:
                    await _read(reader, name)
            else:
                report.attribute_indexes += is_there
                if deep:
                    await _read_attributes(reader, name)
        except DataCorruption as error:
            remedy = f"stop the store, delete all objects below {place} and start it: the table's log has everything"
            if table_id is None:
                remedy = RESTORE_WRITERS
            report.add(DataFinding("index", str(error), remedy, table_id if table_id is not None else writers_id))


async def behind_record(reader: ContainerReader, segment: SegmentMetadata) -> DataFinding | None:
    """Finds an attribute index that is missing, or older than a record of its segment says that was read before."""
    noted = segment.index_high_water
    if not noted:
        return None
    name = attribute_map_name(segment.segment_id)
    try:
        manifest = await reader.newest_map(name)
    except DataCorruption:
        return None  # a finding of its own
    if manifest is not None and manifest.stamp.high_water >= noted:
        return None
    state = "is missing" if manifest is None else f"is of operation {manifest.stamp.high_water}"
    text = f"{reader.layout.maps}{name}/ {state}, the metadata table says that it has those up to {noted}"
    return DataFinding("index", text, RESTORE_WRITERS, segment.segment_id)


async def _is_there(chunks: ChunkStorage, reader: ContainerReader, name: str) -> bool:
    """Whether there is such an index. ``DataCorruption`` if its newest manifest lists what is missing."""
    for _ in range(looks_max):
        manifest = await reader.newest_map(name)
        if manifest is None:
            return False
        problem = ""
        for file in (file for run in manifest.runs for file in run.files):
            found = await _length(
                chunks, file_name := reader.layout.map_file(name, MapObjectId(file.epoch, file.counter))
            )
            if found != file.length:
                problem = f"{file_name} has {found} bytes, manifest {manifest.id} says {file.length}"
        if not problem:
            return True
        newest = await reader.newest_map(name)
        if newest is not None and newest.id == manifest.id:
            raise DataCorruption(problem)
    return True


async def _length(chunks: ChunkStorage, name: str) -> int | None:
    """Bytes of an object; ``None`` if it is missing."""
    try:
        return (await chunks.info(name)).length
    except SegmentNotFound:
        return None


async def _read_attributes(reader: ContainerReader, name: str) -> None:
    """Read all attributes. ``DataCorruption`` if one is damaged."""
    try:
        async for _, value in reader.entries(b"", name):
            decode_value(value, name)
    except Unavailable:
        return  # as below


async def _read(reader: ContainerReader, name: str) -> None:
    """Read all entries. ``DataCorruption`` if one is damaged, or there are no totals."""
    has_totals = is_empty = await reader.newest_map(name) is None
    try:
        async for key, value in reader.entries(b"", name):
            if key == TOTALS_KEY:
                has_totals = bool(decode_totals(value, name))
            else:
                decode_entry(value, name)
    except Unavailable:
        return  # its owner replaces it all the time
    if not has_totals and not is_empty and await reader.newest_map(name) is not None:
        raise DataCorruption(f"{name}: an index without totals")
