"""Reads the entries of a plog file, and finds its end after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress
from segment_service.file_log.files import Files
from segment_service.file_log.layout import PlogFileHeader, decode_mark, header_bytes, mark_bytes
from segment_service.plog.chain import Chain, check_kind
from segment_service.plog.entry import PlogEntryKind, append_bytes_max, decode_entry
from segment_service.plog.plog_client import StoredEntry

slice_bytes: Final = 4 * 1024 * 1024
"""Bytes of a file that are read at once: more than any entry with its mark."""
_ENTRY_MAGIC: Final = b"PLGF"


@dataclass(frozen=True, slots=True)
class RecoveredEnd:
    """The end of the last plog file."""

    end: int
    """Where its last whole entry ends."""
    chain: Chain
    """Its last whole entry, or what precedes its first one."""


def read_slice(files: Files, descriptor: int, header: PlogFileHeader, start: int, end: int) -> list[StoredEntry]:
    """Whole entries from ``start`` on, as many as fit in a slice; none where no mark follows."""
    data = files.read(descriptor, min(slice_bytes, end - start), start)
    view = memoryview(data)
    found: list[StoredEntry] = []
    at = 0
    while (length := decode_mark(view, at, header.salt, start + at)) is not None:
        last = at + mark_bytes + length
        if last > len(view):
            break
        found.append(StoredEntry(start + at, start + last, bytes(view[at + mark_bytes : last])))
        at = last
    return found


def find_end(files: Files, descriptor: int, size: int, header: PlogFileHeader, where: str) -> RecoveredEnd:
    """Follow the entries of the last file up to the first that fails, which is where a crash tore it.

    What lies behind was written by one crash or by none: if an entry there says that more than those found had been
    acknowledged, the disk lost data: ``DataCorruption``. Another process may be writing the file: what it adds
    meanwhile is followed too.
    """
    chain = Chain(header.first_sequence, header.previous, header.epoch)
    position, acked, before = header_bytes, 0, -1
    while position != before:
        before = position
        position, shown = _follow(files, descriptor, size, header, position, chain, where)
        acked = max([acked, shown, *_entries_behind(files, descriptor, size, header, position)])
        if acked <= (chain.next_sequence or 0):
            return RecoveredEnd(position, chain)
    raise DataCorruption(
        f"{where} is whole up to entry {(chain.next_sequence or 0) - 1} at offset {position}, "
        f"but {acked} entries had been acknowledged: the disk lost data"
    )


def _follow(
    files: Files, descriptor: int, size: int, header: PlogFileHeader, position: int, chain: Chain, where: str
) -> tuple[int, int]:
    """Follow whole entries from ``position`` on: returns their end, and how many they say had been acknowledged."""
    acked = 0
    while entries := read_slice(files, descriptor, header, position, size):
        for stored in entries:
            place = f"{where}, offset {stored.start}"
            try:
                entry = decode_entry(stored.data, place)
            except DataCorruption:
                return position, acked
            check_kind(entry, PlogEntryKind.DATA, place)
            chain.accept(entry, LogAddress(header.number, stored.start), place)
            acked = max(acked, entry.header.acked)
            position = stored.end
    return position, acked


def _entries_behind(files: Files, descriptor: int, size: int, header: PlogFileHeader, start: int) -> Iterator[int]:
    """Yield the ``acked`` of each whole entry behind ``start``."""
    overlap = append_bytes_max + mark_bytes
    while start < size:
        data = files.read(descriptor, min(slice_bytes + overlap, size - start), start)
        view = memoryview(data)
        at = data.find(_ENTRY_MAGIC)
        while 0 <= at < slice_bytes + mark_bytes:
            length = decode_mark(view, at - mark_bytes, header.salt, start + at - mark_bytes)
            if length is not None and at + length <= len(view):
                try:
                    yield decode_entry(view[at : at + length], "").header.acked
                except DataCorruption:
                    length = None
            at = data.find(_ENTRY_MAGIC, at + (length or 1))
        start += slice_bytes
