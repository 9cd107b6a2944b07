"""Caches the records of index segments that a client has read, and reads those of many segments together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from pravega_common.errors import Unavailable, UnsupportedOperation
from pravega_common.event_index import (
    EXPECTED_EVENT_SIZE_ATTRIBUTE,
    RecordPage,
    index_record_bytes,
    page_range,
    page_records,
)
from pravega_common.model.segments import SegmentInfo
from pravega_common.wire import commands as c
from pravega_streams.batch.pipelined_calls import MakeQuestion, PipelinedCalls
from pravega_streams.segment.segment_client import SegmentClient

pages_cached_max: Final = 256
"""Pages of 24 KiB that are kept per client, for all segments together."""
indexes_checked_max: Final = 10_000
"""Index segments whose format is remembered."""


class IndexPages:
    """The pages of index segments that one client has read: records never change, and names are not used twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: OrderedDict[tuple[str, int], RecordPage] = OrderedDict()
        self._checked: dict[str, None] = {}

    def get(self, index: str, number: int) -> RecordPage | None:
        with self._lock:
            page = self._pages.get((index, number))
            if page is not None:
                self._pages.move_to_end((index, number))
            return page

    def put(self, index: str, number: int, page: RecordPage) -> None:
        with self._lock:
            self._pages[index, number] = page
            self._pages.move_to_end((index, number))
            if len(self._pages) > pages_cached_max:
                self._pages.popitem(last=False)

    def check_format(self, client: SegmentClient, index: str) -> None:
        if index in self._checked:
            return
        size = client.attribute(index, EXPECTED_EVENT_SIZE_ATTRIBUTE)
        if size != index_record_bytes:
            raise UnsupportedOperation(
                f"{index} has records of {size} bytes, and only those of {index_record_bytes} are understood here"
            )
        self._note_checked(index)

    def check_formats(self, calls: PipelinedCalls, indexes: Iterable[str]) -> None:
        """The same of many; one that is not as it should be, or cannot be asked about, stays unchecked."""
        unknown = [index for index in indexes if index not in self._checked]
        replies = calls.ask({index: _format_question(index) for index in unknown})
        for index, reply in replies.items():
            if isinstance(reply, c.SegmentAttribute) and reply.value == index_record_bytes:
                self._note_checked(index)

    def is_checked(self, index: str) -> bool:
        return index in self._checked

    def _note_checked(self, index: str) -> None:
        with self._lock:
            if len(self._checked) >= indexes_checked_max:
                self._checked.clear()
            self._checked[index] = None


def _format_question(index: str) -> MakeQuestion:
    return lambda request_id: c.GetSegmentAttribute(request_id, index, EXPECTED_EVENT_SIZE_ATTRIBUTE, "")


def records_of(index: SegmentInfo) -> tuple[int, int]:
    """The numbers of the records that an index segment has."""
    return -(-index.start_offset // index_record_bytes), index.length // index_record_bytes


def last_pages(
    calls: PipelinedCalls, pages: IndexPages, found: Mapping[str, str], indexes: Mapping[str, SegmentInfo]
) -> Iterator[tuple[str, str, RecordPage | None]]:
    """Each segment with its index and the last page of that, read together where it is not known; None: no records."""
    wanted: dict[str, tuple[int, int]] = {}
    known: dict[str, RecordPage] = {}
    for name in found.values():
        first, end = records_of(indexes[name])
        if first >= end:
            continue
        number = (end - 1) // page_records
        span = page_range(number, first, end)
        page = pages.get(name, number)
        if page is not None and page.first <= span[0] and page.end >= span[1]:
            known[name] = page
        else:
            wanted[name] = span
    read = calls.read(
        {name: (first * index_record_bytes, end * index_record_bytes) for name, (first, end) in wanted.items()}
    )
    for name, data in read.items():
        first, end = wanted[name]
        if len(data) == (end - first) * index_record_bytes:
            known[name] = RecordPage(first, data)
            pages.put(name, (end - 1) // page_records, known[name])
    for segment, name in found.items():
        yield segment, name, known.get(name)


_caches: WeakKeyDictionary[SegmentClient, IndexPages] = WeakKeyDictionary()
_caches_lock = threading.Lock()


def pages_of(client: SegmentClient) -> IndexPages:
    with _caches_lock:
        return _caches.setdefault(client, IndexPages())


def read_records(client: SegmentClient, index: str, first: int, end: int) -> bytes:
    """The bytes of these records, all of them written before."""
    offset, left = first * index_record_bytes, (end - first) * index_record_bytes
    parts = []
    while left > 0:
        data = _read_once(client, index, offset, left)
        parts.append(data)
        offset += len(data)
        left -= len(data)
    return b"".join(parts)


def _read_once(client: SegmentClient, index: str, offset: int, length: int) -> bytes:
    reply = client.call(
        index, lambda rid: c.ReadSegment(index, offset, length, "", rid), c.SegmentRead, idempotent=True
    )
    if reply.offset != offset or not len(reply.data):
        raise Unavailable(f"{index}: the store answered a read at offset {offset} without its data")
    return bytes(reply.data[:length])
