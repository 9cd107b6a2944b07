"""Joins the entries of data frames into records, in recovery. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.durable_log.data_frame import (
    ENTRY,
    ENTRY_BEGINS,
    ENTRY_ENDS,
    HEADER,
    TRAILER,
    FrameHeader,
    parse_header,
)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A whole record and the frame in which it begins."""

    data: memoryview
    address: LogAddress
    begins_frame: bool
    """Whether it is a checkpoint at the beginning of that frame, hence a truncation point."""


class DataFrameReader:
    """Joins the entries of successive frames into records.

    A record that the end of an epoch cut off is dropped: its operation was never acknowledged. Everything else that
    does not fit together is ``DataCorruption``.
    """

    def __init__(self) -> None:
        self.epoch = 0
        """Epoch of the last frame."""
        self._pieces: list[memoryview] = []
        self._address = LogAddress(0, 0)
        self._begins_frame = False

    def feed(self, entry: LogEntry) -> Iterator[ReadRecord]:
        """The records that end in this frame, in order."""
        header = parse_header(entry.payload)
        if header.epoch < self.epoch:
            raise DataCorruption(f"frame at {entry.address} has epoch {header.epoch} after epoch {self.epoch}")
        if header.epoch > self.epoch:
            self._pieces.clear()
            self.epoch = header.epoch
        return self._records(entry, header)

    def _records(self, entry: LogEntry, header: FrameHeader) -> Iterator[ReadRecord]:
        position = HEADER.size
        end = len(entry.payload) - TRAILER.size
        first_record = 0
        while position < end:
            flags, length = ENTRY.unpack_from(entry.payload, position)
            data_begin = position + ENTRY.size
            if (
                flags & ~(ENTRY_BEGINS | ENTRY_ENDS)
                or data_begin + length > end
                or bool(flags & ENTRY_BEGINS) == bool(self._pieces)
            ):
                raise DataCorruption(f"frame at {entry.address}: entry at {position} does not fit what precedes")
            if flags & ENTRY_BEGINS:
                self._address = entry.address
                self._begins_frame = header.begins_with_checkpoint and position == HEADER.size
                first_record = first_record or position
            self._pieces.append(entry.payload[data_begin : data_begin + length])
            position = data_begin + length
            if flags & ENTRY_ENDS:
                data = self._pieces[0] if len(self._pieces) == 1 else memoryview(b"".join(self._pieces))
                self._pieces.clear()
                yield ReadRecord(data, self._address, self._begins_frame)
        if first_record != header.first_record:
            raise DataCorruption(
                f"frame at {entry.address}: first record at {first_record}, the header says {header.first_record}"
            )
