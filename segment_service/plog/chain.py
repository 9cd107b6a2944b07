"""Checks that the entries of a log stream follow one another, and finds the end of a plog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.plog.entry import PlogEntry, PlogEntryKind, envelope_bytes
from segment_service.plog.plog_client import StoredEntry

offset_max: Final = 2**62
"""Above every offset in a plog."""


@dataclass(slots=True)
class Chain:
    """The last entry of a chain; ``None`` accepts any first entry (nothing is known after a truncation)."""

    next_sequence: int | None = None
    last: LogAddress | None = None
    epoch: int = 0

    def accept(self, entry: PlogEntry, address: LogAddress, where: str) -> None:
        """``DataCorruption`` unless the entry is the next one."""
        header = entry.header
        if self.next_sequence is not None and header.sequence != self.next_sequence:
            raise DataCorruption(f"{where}: entry {header.sequence} where {self.next_sequence} must follow")
        if self.last is not None and header.previous != self.last:
            raise DataCorruption(f"{where}: follows {header.previous}, but the entry before it is at {self.last}")
        if header.epoch < self.epoch:
            raise DataCorruption(f"{where}: of epoch {header.epoch}, after an entry of epoch {self.epoch}")
        self.next_sequence = header.sequence + 1
        self.last = address
        self.epoch = header.epoch


@dataclass(frozen=True, slots=True)
class PlogEnd:
    """The end of a plog that was fenced: behind its last contiguous entry."""

    offset: int
    payload_sizes: list[int]
    """Payload bytes of each entry found, in order."""


async def find_end(
    entries: AsyncIterator[StoredEntry], number: int, start: int, chain: Chain, kind: PlogEntryKind = PlogEntryKind.DATA
) -> PlogEnd:
    """Follow the entries from ``start`` up to the first gap.

    Entries behind a gap were refused or lost on their way and never acknowledged. If one of the entries read says that
    more than those found had been acknowledged, the server lost data: ``DataCorruption``.
    """
    offset, sizes, acked, gap = start, [], 0, False
    async for stored in entries:
        where = f"plog {number}, offset {stored.start}"
        entry = stored.decode(where)
        acked = max(acked, entry.header.acked)
        gap = gap or stored.start != offset
        if gap:
            continue
        check_kind(entry, kind, where)
        chain.accept(entry, LogAddress(number, stored.start), where)
        offset = stored.end
        sizes.append(stored.end - stored.start - envelope_bytes)
    if acked > (chain.next_sequence or 0):
        raise DataCorruption(
            f"plog {number} ends after entry {(chain.next_sequence or 0) - 1} at offset {offset}, "
            f"but {acked} entries had been acknowledged: the server lost data"
        )
    return PlogEnd(offset, sizes)


async def sealed_entries(
    entries: AsyncIterator[StoredEntry], number: int, start: int, end: int, chain: Chain
) -> AsyncIterator[LogEntry]:
    """The payloads of a sealed plog from ``start`` to ``end``, where no gap is allowed."""
    offset = start
    async for stored in entries:
        where = f"plog {number}, offset {stored.start}"
        if stored.start != offset:
            raise DataCorruption(f"{where}: the entry before it ends at {offset}")
        entry = stored.decode(where)
        check_kind(entry, PlogEntryKind.DATA, where)
        address = LogAddress(number, stored.start)
        chain.accept(entry, address, where)
        offset = stored.end
        yield LogEntry(address, entry.payload)
    if offset != end:
        raise DataCorruption(f"plog {number} ends at {offset}, but was sealed at {end}: the server lost data")


def check_kind(entry: PlogEntry, kind: PlogEntryKind, where: str) -> None:
    if entry.header.kind is not kind:
        raise DataCorruption(f"{where}: a {entry.header.kind.name} entry in a log of {kind.name} entries")
