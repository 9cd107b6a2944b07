"""Reads the entries of a log in files, whose plogs and their ends were found before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogEntry
from segment_service.file_log.container_files import ContainerFiles, FoundLog, PlogFile
from segment_service.file_log.layout import header_bytes
from segment_service.plog.chain import Chain, sealed_entries
from segment_service.plog.plog_client import StoredEntry

OnThread = Callable[[Callable[[], list[StoredEntry]]], Awaitable[list[StoredEntry]]]
"""Runs a blocking reading on a thread."""


async def read_found(found: FoundLog, files: ContainerFiles, run: OnThread) -> AsyncIterator[LogEntry]:
    """The entries from the truncation point to the end that was found, without a gap; else ``DataCorruption``."""
    expected, chain = found.truncated_at, Chain()
    for plog in found.plogs:
        header = plog.header
        start = header_bytes if expected is None else expected.offset
        if chain.next_sequence not in (None, header.first_sequence) or chain.last not in (None, header.previous):
            raise DataCorruption(f"plog {header.number} begins with frame {header.first_sequence}, not in sequence")
        if start == header_bytes:
            chain.next_sequence, chain.last = header.first_sequence, header.previous
        stored = _stored(plog, start, files, run)
        async for entry in sealed_entries(stored, header.number, start, plog.end, chain):
            expected = None
            yield entry
        if expected is not None:
            raise DataCorruption(f"the frame at {expected}, where the log begins, is gone: the disk lost data")


async def _stored(plog: PlogFile, start: int, files: ContainerFiles, run: OnThread) -> AsyncIterator[StoredEntry]:
    header = plog.header
    while start < plog.end:
        entries = await run(partial(files.read, plog, start))
        if not entries:
            raise DataCorruption(
                f"plog {header.number} of container {header.container_id}: no entry at offset {start}, its entries end "
                f"at {plog.end}"
            )
        for entry in entries:
            yield entry
        start = entries[-1].end
