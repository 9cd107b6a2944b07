"""Reads everything at the end of a run, when nothing fails any more, and has every byte explained."""

from __future__ import annotations

import asyncio

from pravega_common.errors import SegmentNotFound
from segment_service.contracts.attributes import EVENT_COUNT
from segment_service.contracts.segment_store import SegmentProperties
from tests.simulator.clients import Client
from tests.simulator.history import Progress, SegmentHistory
from tests.simulator.writers import writer_attribute

drain_time_max_s = 120.0
locations = 3
"""Offsets that are located in each segment."""


class Auditor(Client):
    async def check(self, segment: SegmentHistory) -> None:
        name = segment.name
        floor = segment.floor()
        answer = await self.look(name)
        if isinstance(answer.error, SegmentNotFound):
            segment.violated("lost", f"the segment is not there in epoch {answer.epoch}")
            return
        info: SegmentProperties = answer.value
        segment.length_seen(info.length, answer.epoch, floor)
        segment.start_seen(info.start_offset)
        if info.start_offset < segment.truncation_done:
            text = f"it was truncated at {segment.truncation_done}, and begins at {info.start_offset}"
            segment.violated("broken", text)
        if segment.sealed is Progress.DONE and not info.is_sealed:
            segment.violated("lost", "it was sealed, and is open")
        content = await self._read_all(segment, info)
        if content is not None:
            known = await self._last_events(segment)
            count = info.attributes.get(EVENT_COUNT, 0)
            if count != sum(known.values()):
                segment.violated("broken", f"it counts {count} events, its writers have {known}")
            boundaries = self.world.history.check_content(segment, info.start_offset, content, known)
            if boundaries is not None and self.world.settings.family != "damage":  # which hits index segments too
                await self._locate(segment, info, boundaries)

    async def _last_events(self, segment: SegmentHistory) -> dict[int, int]:
        """The last event number of each writer, as the store knows it."""
        name, known = segment.name, {}
        for writer in sorted(segment.writers):
            attribute = writer_attribute(segment, writer)
            answer = await self.insist(name, lambda store, one=attribute: store.segments.get_attribute(name, one))  # type: ignore[misc]
            if answer.error is not None:
                segment.violated("lost", f"the last event of writer {writer} cannot be read: {answer.error!r}")
            known[writer] = 0 if answer.error is not None else max(answer.value, 0)
        return known

    async def _locate(self, segment: SegmentHistory, info: SegmentProperties, boundaries: list[int]) -> None:
        """The event index answers with real ends of events."""
        name, ends = segment.name, {*boundaries, info.start_offset, info.length}
        for _ in range(locations):
            offset = self.rng.randint(info.start_offset, info.length)
            answer = await self.insist(name, lambda store, at=offset: store.segments.locate_offset(name, at))  # type: ignore[misc]
            if answer.error is None and (answer.value < offset or answer.value not in ends):
                segment.violated("broken", f"from {offset} on no event ends at {answer.value}, where the index says so")

    async def check_sources(self, segment: SegmentHistory) -> None:
        """A segment that was merged is gone."""
        for merge in segment.merges.values():
            name = merge.source.name
            if merge.source.merged is Progress.DONE:
                answer = await self.look(name)
                if answer.error is None:
                    merge.source.violated("duplicated", "it was merged, and is still there")

    async def _read_all(self, segment: SegmentHistory, info: SegmentProperties) -> bytes | None:
        name, parts, position = segment.name, [], info.start_offset
        while position < info.length:
            wanted = min(info.length - position, self.rng.choice((10_000, 200_000, 2_000_000)))
            answer = await self.insist(
                name,
                lambda store, at=position, length=wanted: store.segments.read(name, at, length),  # type: ignore[misc]
            )
            if answer.error is not None:
                segment.violated("lost", f"{wanted} bytes at {position} cannot be read: {answer.error!r}")
                return None
            data = b"".join(bytes(view) for view in answer.value.data)
            parts.append(data)
            position += len(data)
        return b"".join(parts)

    async def drained(self, segment: SegmentHistory) -> None:
        """Wait until Tier 2 has all of the segment, as long as it gets more: with small limits that may be slow."""
        loop, name = asyncio.get_running_loop(), segment.name
        ends_s, reached = loop.time() + drain_time_max_s, 0
        while True:
            answer = await self.look(name)
            if answer.error is not None or answer.value.storage_length == answer.value.length:
                return
            if answer.value.storage_length > reached:
                ends_s, reached = loop.time() + drain_time_max_s, answer.value.storage_length
            if self.world.is_damaged(name):
                return  # what is damaged is kept in Tier 1
            if loop.time() > ends_s:
                text = (
                    f"Tier 2 has {answer.value.storage_length} of {answer.value.length} bytes, and that does not change"
                )
                segment.violated("offline", text)
                return
            await asyncio.sleep(0.5)
