"""Checks what clients did and saw against what that rules out.

Each incarnation of a segment has a ``SegmentHistory``. A rule that is broken is a ``Violation``, noted at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.simulator.events import Event, EventId, event_at, first_event, make_event
from tests.simulator.image import ByteImage

violations_max: Final = 5
"""A run with as many ends."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken.

    ``kind``: lost, duplicated, reordered, phantom, torn, wrong byte, silent loss, left over, offline, refused or
    broken.
    """

    kind: str
    text: str


class Progress(enum.Enum):
    """The progress of an operation on a whole segment."""

    NOT_ASKED = 0
    ASKED = 1
    """Sent; it may be done by now, or later."""
    DONE = 2


@dataclass(slots=True)
class WriterHistory:
    events: list[Event] = field(default_factory=list)
    """By number from 1; all were sent at least once."""
    acked: int = 0
    """Highest number acknowledged, or shown by the writer's attribute."""
    acked_epoch: int = 0


@dataclass(slots=True)
class MergeHistory:
    source: SegmentHistory
    progress: Progress = Progress.ASKED
    end: int = -1
    """The target's length after it, once that is known."""


class Floor(NamedTuple):
    """The length that a call sent now must find, and the epoch from which on it must."""

    length: int
    epoch: int


class SegmentHistory:
    """One incarnation of a segment."""

    def __init__(self, name: str, key: int, report: Callable[[str, str], None]) -> None:
        self.name = name
        self.key = key
        self.image = ByteImage()
        self.writers: dict[int, WriterHistory] = {}
        self.merges: dict[int, MergeHistory] = {}
        self.created = Progress.NOT_ASKED
        self.sealed = Progress.NOT_ASKED
        self.deleted = Progress.NOT_ASKED
        self.merged = Progress.NOT_ASKED
        self.truncation_asked = 0
        self.truncation_done = 0
        self.length_acked = 0
        self.length_epoch = 0
        self.sealed_length = -1
        self.segment_id = -1
        self.created_epoch = 0
        """The epoch of the owner that made it; owners before it know an earlier segment of this name."""
        self._report = report

    def __repr__(self) -> str:
        return f"{self.name}/{self.key}"

    @property
    def may_be_gone(self) -> bool:
        return self.deleted is not Progress.NOT_ASKED or self.merged is not Progress.NOT_ASKED

    @property
    def content(self) -> bytes:
        """The bytes of a transaction whose events are all stored: it has one writer."""
        return b"".join(event.data for writer in self.writers.values() for event in writer.events)

    def violated(self, kind: str, text: str) -> None:
        self._report(kind, f"{self}: {text}")

    # --- what writers did

    def next_event(self, writer: int, payload_bytes: int) -> Event:
        """Make the writer's next event, about to be sent for the first time."""
        history = self.writers.setdefault(writer, WriterHistory())
        event = make_event(EventId(self.key, writer, len(history.events) + 1), payload_bytes)
        history.events.append(event)
        return event

    def acked(self, event: Event, end: int, epoch: int) -> None:
        """An append was acknowledged with the segment's length after it."""
        writer = self.writers[event.id.writer]
        if event.id.number <= writer.acked and event.end not in (-1, end):
            self.violated("duplicated", f"{event.id} was acknowledged to end at {event.end} and at {end}")
        event.is_acked, event.end = True, end
        self._writer_at_least(writer, event.id.number, epoch)
        self.learn(end - len(event.data), event.data, f"the ack of {event.id}")
        self.length_at_least(end, epoch)

    def attribute_seen(self, writer_id: int, number: int, epoch: int) -> None:
        """The store said that this is the last event of the writer that it has."""
        writer = self.writers.setdefault(writer_id, WriterHistory())
        if number < writer.acked and epoch >= writer.acked_epoch:
            self.violated("lost", f"writer {writer_id} had event {writer.acked} acknowledged, the store knows {number}")
        elif number > len(writer.events):
            self.violated("phantom", f"writer {writer_id} sent {len(writer.events)} events, the store knows {number}")
        else:
            self._writer_at_least(writer, number, epoch)

    def _writer_at_least(self, writer: WriterHistory, number: int, epoch: int) -> None:
        if number > writer.acked:
            writer.acked, writer.acked_epoch = number, epoch

    # --- what readers saw

    def learn(self, offset: int, data: bytes, where: str) -> None:
        wrong = self.image.learn(offset, data)
        if wrong is not None:
            self.violated("wrong byte", f"{where} has another byte at offset {wrong} than was known before")

    def length_at_least(self, length: int, epoch: int) -> None:
        if length > self.length_acked:
            self.length_acked, self.length_epoch = length, epoch

    def floor(self) -> Floor:
        return Floor(self.length_acked, self.length_epoch)

    def length_seen(self, length: int, epoch: int, floor: Floor) -> None:
        if length < floor.length and epoch >= floor.epoch:
            self.violated("lost", f"its length was {floor.length}, and is {length} in epoch {epoch}")
        if length > self.sealed_length >= 0:
            self.violated("broken", f"it was sealed at {self.sealed_length}, and has {length} bytes")
        self.length_at_least(length, epoch)

    def start_seen(self, start: int) -> None:
        if start > self.truncation_asked:
            self.violated("lost", f"it begins at {start}, nobody truncated beyond {self.truncation_asked}")


class History:
    """All segments of a run, and the violations."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.segments: dict[int, SegmentHistory] = {}
        self.violations: list[Violation] = []
        self.acked_events = 0
        self.checked_bytes = 0
        self.on_enough: Callable[[], object] = bool
        self._note = note

    def violated(self, kind: str, text: str) -> None:
        if len(self.violations) < violations_max:
            self.violations.append(Violation(kind, text))
            self._note(f"VIOLATION {kind}: {text}")
            if len(self.violations) == violations_max:
                self.on_enough()

    def new_segment(self, name: str) -> SegmentHistory:
        segment = SegmentHistory(name, len(self.segments) + 1, self.violated)
        self.segments[segment.key] = segment
        return segment

    def ids_in(self, name: str) -> set[int]:
        """The ids under which Tier 2 may have bytes of the segments of this name."""
        found = set()
        for segment in self.segments.values():
            if segment.name == name:
                found |= {segment.segment_id, *(merge.source.segment_id for merge in segment.merges.values())}
        return found

    def check_content(
        self, segment: SegmentHistory, start: int, content: bytes, attributes: dict[int, int]
    ) -> list[int] | None:
        """Explain every byte of a segment, read whole from ``start`` to its end, by what was sent.

        ``attributes``: the last event number of each writer, as the store knows it. Returns where events end, or
        ``None`` after a violation.
        """
        self.checked_bytes += len(content)
        before = len(self.violations)
        segment.learn(start, content, "the final read")
        if len(self.violations) > before:
            return None
        check = _ContentCheck(self, segment, start, content)
        check.run(attributes)
        return check.boundaries if len(self.violations) == before else None


class _ContentCheck:
    """One pass over the whole content of a segment."""

    def __init__(self, history: History, segment: SegmentHistory, start: int, content: bytes) -> None:
        self._segments = history.segments
        self._segment = segment
        self._start = start
        self._content = content
        self._last: dict[tuple[int, int], int] = {}
        self.boundaries: list[int] = []
        self._runs: list[int] = []
        """Keys of the segments whose events follow one another."""

    def run(self, attributes: dict[int, int]) -> None:
        position = 0 if not self._start else first_event(self._content)
        self.boundaries.append(self._start + position)
        while position < len(self._content):
            found = event_at(self._content, position)
            if found is None:
                self._segment.violated("torn", f"no whole event begins at offset {self._start + position}")
                return
            event_id, end = found
            if not self._accept(event_id, self._content[position:end], self._start + end):
                return
            position = end
        self._check_writers(self._segment, attributes)
        self._check_merges()

    def _accept(self, event_id: EventId, data: bytes, end: int) -> bool:
        owner = self._segments.get(event_id.segment)
        writer = owner.writers.get(event_id.writer) if owner is not None else None
        if owner is None or writer is None or not 0 < event_id.number <= len(writer.events):
            self._segment.violated("phantom", f"{event_id} was never sent")
            return False
        if writer.events[event_id.number - 1].data != data:
            self._segment.violated("wrong byte", f"{event_id} differs from what was sent")
            return False
        if owner is not self._segment and owner.key not in self._segment.merges:
            self._segment.violated("phantom", f"{event_id} belongs to {owner}, which was not merged here")
            return False
        if not self._runs or self._runs[-1] != owner.key:
            if owner is not self._segment and owner.key in self._runs:
                self._segment.violated("torn", f"the bytes of {owner} are not in one piece")
                return False
            self._runs.append(owner.key)
        return self._follows(event_id, end)

    def _follows(self, event_id: EventId, end: int) -> bool:
        whose = (event_id.segment, event_id.writer)
        last = self._last.get(whose)
        if last is None:
            last = event_id.number - 1 if self._start else 0
        if event_id.number <= last:
            kind = "duplicated" if event_id.number == last else "reordered"
            self._segment.violated(kind, f"{event_id} follows event {last} of its writer")
            return False
        if event_id.number > last + 1:
            self._segment.violated("lost", f"{event_id} follows event {last} of its writer")
            return False
        self._last[whose] = event_id.number
        self.boundaries.append(end)
        return True

    def _check_writers(self, segment: SegmentHistory, attributes: dict[int, int]) -> None:
        for writer_id, writer in segment.writers.items():
            last = self._last.get((segment.key, writer_id), 0)
            if self._start and not last:
                continue  # all of its events may have been truncated
            if last < writer.acked:
                segment.violated("lost", f"writer {writer_id}: {writer.acked} events acknowledged, {last} are there")
            if segment is self._segment and attributes.get(writer_id, last) != last:
                text = f"writer {writer_id}: the last event is {last}, its attribute says {attributes[writer_id]}"
                segment.violated("broken", text)

    def _check_merges(self) -> None:
        for merge in self._segment.merges.values():
            source = merge.source
            if source.key in self._runs:
                source.merged = Progress.DONE
                if self._runs[0] != source.key or not self._start:
                    self._check_writers(source, {})
            elif source.content and merge.end - len(source.content) >= self._start:  # merged for certain, and not below
                self._segment.violated("lost", f"{source} was merged, and its bytes are not there")
