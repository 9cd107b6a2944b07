"""Examines the key indexes of large tables in one container, while its owner may change them."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import DataCorruption, SegmentNotFound, Unavailable
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.table_maps import segment_of_table_map
from segment_service.maintenance.findings import ContainerReport, DataFinding
from segment_service.maintenance.read_only import ContainerReader
from segment_service.metadata_table.metadata_table import map_name as metadata_map
from segment_service.storage.chunk_names import MapObjectId
from segment_service.tables.index_entry import TOTALS_KEY, decode_entry, decode_totals

looks_max: Final = 8
"""How often an index that keeps changing is looked at; it is well then, since its owner reads and writes it."""


async def examine_indexes(
    chunks: ChunkStorage, reader: ContainerReader, report: ContainerReport, *, deep: bool
) -> None:
    """Look whether the files of all indexes are there, with their lengths; ``deep``: read every entry."""
    for name in await reader.map_names():
        segment_id = segment_of_table_map(name)
        place = f"{reader.layout.maps}{name}/"
        if segment_id is None:
            if name != metadata_map:
                remedy = "run the version of this program that wrote it"
                report.add(DataFinding("index", f"{place} is a map that this program does not know", remedy))
            continue
        try:
            report.table_indexes += await _is_there(chunks, reader, name)
            if deep:
                await _read(reader, name)
        except DataCorruption as error:
            remedy = f"stop the store, delete all objects below {place} and start it: the table's log has everything"
            report.add(DataFinding("index", str(error), remedy, segment_id))


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
