"""Checks an index segment: its records are true boundaries with true counts, in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pravega_common.errors import SegmentTruncated, Unavailable
from pravega_common.event_index import IndexRecord, index_record_bytes
from pravega_common.names import index_segment_name
from segment_service.contracts.segment_store import SegmentStore
from tests.support.containers import read_all
from tests.support.eventually import eventually

settle_time_max_s = 10.0


def parse(data: bytes) -> list[IndexRecord]:
    assert len(data) % index_record_bytes == 0, f"{len(data)} bytes are no whole records"
    return [
        IndexRecord(*(int.from_bytes(data[at + 8 * field : at + 8 * field + 8], "big") for field in range(3)))
        for at in range(0, len(data), index_record_bytes)
    ]


async def records_of(store: SegmentStore, segment: str) -> list[IndexRecord]:
    """Returns all that are left, and asks again while Tier 2 does not answer."""
    name = index_segment_name(segment)
    for _ in range(200):
        try:
            return parse(await read_all(store, name, (await store.get_info(name)).start_offset))
        except (Unavailable, SegmentTruncated):
            continue
    raise AssertionError(f"{name} cannot be read")


async def settled(store: SegmentStore, segment: str) -> list[IndexRecord]:
    """The records once the last one is about the present end of the segment."""
    records: list[IndexRecord] = []

    async def is_complete() -> bool:
        nonlocal records
        records = await records_of(store, segment)
        length = (await store.get_info(segment)).length
        return (records[-1].length if records else 0) == length

    await eventually(is_complete, f"the whole index of {segment}", settle_time_max_s)
    return records


@dataclass(frozen=True)
class Truth:
    """Offsets of all true boundaries, ascending and from 0 on, with the events before each."""

    offsets: Sequence[int]
    events: Sequence[int]

    def check(self, records: Sequence[IndexRecord]) -> None:
        last = IndexRecord(0, 0, 0)
        for record in records:
            position = bisect_left(self.offsets, record.length)
            assert position < len(self.offsets), f"{record} lies beyond the segment"
            assert self.offsets[position] == record.length, f"{record} is no boundary"
            assert self.events[position] == record.event_count, f"{record}: there are {self.events[position]} events"
            assert record.length > last.length and record.time_ms >= last.time_ms, f"{record} after {last}"
            last = record

    def check_located(self, records: Sequence[IndexRecord], target: int, located: int) -> None:
        """``located`` answers ``target``, given that the index had at least these records."""
        assert located in self.offsets, f"{located} is no boundary"
        assert located >= min(target, self.offsets[-1])
        known = [record.length for record in records]
        position = bisect_left(known, target)
        if position < len(known):
            assert located <= known[position], f"{known[position]} is a nearer boundary for {target} than {located}"

    def events_before(self, offset: int) -> int:
        return self.events[bisect_right(self.offsets, offset) - 1]
