"""Defines the sparse index of event boundaries that a store keeps beside every segment of a user's stream.

``<segment>#index`` is a sequence of records ``i64 length | i64 event count | i64 time in ms``, big-endian
(docs/wire-protocol.md 5.5): at some moment the segment had this length and this count of events since its beginning.
Whether Pravega wrote an index segment (0.14 and later) or this project did, the bytes mean the same.

Only the format and the search are here; a container or a client reads the bytes and feeds them in as pages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check

index_record_bytes: Final = 24
"""Also the value of the attribute EXPECTED_INDEX_SEGMENT_EVENT_SIZE, the sign of an index segment that is valid."""
EXPECTED_EVENT_SIZE_ATTRIBUTE: Final = bytes.fromhex("80000000000000000000000000000010")
CREATION_TIME_ATTRIBUTE: Final = bytes.fromhex("80000000000000000000000000000000")
"""Attribute ids as they are on the wire (docs/wire-protocol.md 7); the second one is that of the segment itself."""
page_records: Final = 1024
"""Records of a page, the unit in which an index segment is read and cached."""
page_bytes: Final = page_records * index_record_bytes

LENGTH: Final = 0
EVENT_COUNT: Final = 1
TIME_MS: Final = 2
"""Columns of a page."""

_RECORD: Final = struct.Struct(">qqq")


class IndexRecord(NamedTuple):
    """The segment's first ``length`` bytes hold ``event_count`` events, all of them written by ``time_ms``."""

    length: int
    event_count: int
    time_ms: int


def encode_records(records: Iterable[IndexRecord]) -> bytes:
    return b"".join(_RECORD.pack(*record) for record in records)


class RecordPage:
    """Records ``first`` to ``end`` (excluded) of an index segment, counted from the beginning of its life.

    Columns never go down: what several connections of a real Pravega wrote in the wrong order is smoothed to the
    values before, which repeats a boundary and invents none.
    """

    __slots__ = ("_columns", "end", "first")

    def __init__(self, first: int, data: bytes | memoryview) -> None:
        """``DataCorruption`` if ``data`` is no whole number of records."""
        if len(data) % index_record_bytes:
            raise DataCorruption(f"{len(data)} bytes of an index segment are no multiple of {index_record_bytes}")
        raw = np.frombuffer(data, ">i8").reshape(-1, 3)
        self._columns: npt.NDArray[np.int64] = np.maximum.accumulate(raw.astype(np.int64), axis=0)
        self.first = first
        self.end = first + len(raw)

    def record(self, number: int) -> IndexRecord:
        """``number`` counts from the beginning of the index segment's life."""
        check(self.first <= number < self.end, "record outside its page", number=number, first=self.first)
        return IndexRecord(*self._columns[number - self.first].tolist())

    def first_at_least(self, column: int, value: int) -> int:
        """The number of the first record of the page whose column is at least ``value``; ``end`` if all are below."""
        return self.first + int(np.searchsorted(self._columns[:, column], value, side="left"))

    def times_behind(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The time of the first record behind each offset; all must lie before the last one."""
        behind = np.searchsorted(self._columns[:, LENGTH], offsets, side="right")
        times: npt.NDArray[np.int64] = self._columns[behind, TIME_MS]
        return times


class RecordSearch:
    """Finds the first record in ``[low, high)`` whose column is at least ``value``; without I/O.

    While ``wanted`` is not None, ``feed`` the page of that number, with at least those of its records that lie in
    ``[low, high)``. Then ``found`` is the record's number, ``high`` if there is no such record. Asks for a number of
    pages that grows with the logarithm of the length.
    """

    def __init__(self, low: int, high: int, column: int, value: int) -> None:
        self._low = low
        self._high = max(low, high)
        self._column = column
        self._value = value

    @property
    def wanted(self) -> int | None:
        if self._low >= self._high:
            return None
        return (self._low + self._high) // 2 // page_records

    @property
    def found(self) -> int:
        return self._low

    def feed(self, page: RecordPage) -> None:
        low, high = max(self._low, page.first), min(self._high, page.end)
        check(low < high, "a page that says nothing about the search", page=page.first, low=self._low, high=self._high)
        position = min(max(page.first_at_least(self._column, self._value), low), high)
        if position < high:
            # What lies below the page may fit as well, unless a record of the page does not.
            self._high = position
            if position > low:
                self._low = position
        else:
            self._low = high


def page_range(number: int, first: int, end: int) -> tuple[int, int]:
    """Numbers of the records of a page that exist in an index segment with records ``first`` to ``end`` (excluded)."""
    return max(first, number * page_records), min(end, (number + 1) * page_records)
