"""The container's side of the storage writer, in memory and strict: a byte that may be evicted cannot be read."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pravega_common.errors import Fenced
from segment_service.contracts.operations import (
    Append,
    Barrier,
    Delete,
    MapSegment,
    Merge,
    Operation,
    Seal,
    Truncate,
    UpdateAttributes,
)
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.segment_storage import LogState

TRANSACTION = "scope/stream/0.#epoch.0#transaction.00000000000000000000000000000001"


@dataclass
class Part:
    """[offset, offset + length) of a target came from the source, and Tier 2 has not moved it."""

    offset: int
    source_id: int
    length: int


@dataclass
class State:
    """Metadata and merges that follow from the operations so far."""

    segments: dict[int, SegmentMetadata] = field(default_factory=dict)
    parts: dict[int, list[Part]] = field(default_factory=dict)
    merged_at: dict[int, tuple[int, int]] = field(default_factory=dict)

    def apply(self, operation: Operation) -> None:
        if isinstance(operation, MapSegment):
            self.segments[operation.segment_id] = SegmentMetadata(operation.segment_id, operation.name)
        elif isinstance(operation, Append):
            self.segments[operation.segment_id].length += operation.length
        elif isinstance(operation, Seal):
            self.segments[operation.segment_id].is_sealed = True
        elif isinstance(operation, Truncate):
            self.segments[operation.segment_id].start_offset = operation.offset
        elif isinstance(operation, Merge):
            source = self.segments[operation.source_id]
            source.is_merged = True
            source.merged_into = operation.segment_id
            self.segments[operation.segment_id].length += operation.length
            part = Part(operation.offset, operation.source_id, operation.length)
            self.parts.setdefault(operation.segment_id, []).append(part)
            self.merged_at[operation.source_id] = (operation.segment_id, operation.offset)
        elif isinstance(operation, Delete):
            self.segments[operation.segment_id].is_deleted = True


class CommittedLog:
    """The durable state under every owner: operations, all bytes, and where Tier 1 was truncated."""

    def __init__(self) -> None:
        self.epoch = 0
        self.operations: list[Operation] = []
        self.bytes: dict[int, bytes] = {}
        self.state = State()
        self.truncated = 0
        """This many operations are gone from Tier 1."""
        self.before_truncated = State()
        self.next_id = 1
        self.sequence = 0
        self.grown = asyncio.Event()

    @property
    def next_sequence(self) -> int:
        return self.sequence + 1

    def commit(self, operation: Operation, data: bytes = b"") -> None:
        self.sequence = operation.sequence_number
        if isinstance(operation, MapSegment):
            self.bytes[operation.segment_id] = b""
        elif isinstance(operation, Append):
            self.bytes[operation.segment_id] += data
        elif isinstance(operation, Merge):
            self.bytes[operation.segment_id] += self.bytes[operation.source_id]
        self.operations.append(operation)
        self.state.apply(operation)

    def truncate(self, sequence: int) -> None:
        """Tier 1 forgets acknowledged operations; recovery begins with the state after them."""
        while self.truncated < len(self.operations) and self.operations[self.truncated].sequence_number <= sequence:
            self.before_truncated.apply(self.operations[self.truncated])
            self.truncated += 1

    def live(self) -> list[SegmentMetadata]:
        return [one for one in self.state.segments.values() if not one.is_deleted and not one.is_merged]

    def create(self, rng: random.Random) -> int:
        return self.create_named(TRANSACTION if rng.random() < 0.4 else f"scope/segment-{self.next_id}")

    def create_named(self, name: str) -> int:
        segment_id = self.next_id
        self.next_id += 1
        self.commit(MapSegment(sequence_number=self.next_sequence, name=name, segment_id=segment_id))
        return segment_id

    def append(self, segment_id: int, data: bytes) -> None:
        offset = self.state.segments[segment_id].length
        self.commit(
            Append(
                sequence_number=self.next_sequence, segment_id=segment_id, data=None, length=len(data), offset=offset
            ),
            data,
        )

    def merge(self, target_id: int, source_id: int) -> None:
        source, target = self.state.segments[source_id], self.state.segments[target_id]
        if not source.is_sealed:
            self.commit(Seal(sequence_number=self.next_sequence, segment_id=source_id, offset=source.length))
        self.commit(
            Merge(
                sequence_number=self.next_sequence,
                segment_id=target_id,
                source_id=source_id,
                offset=target.length,
                length=source.length,
            )
        )

    def commit_random(self, rng: random.Random, count: int) -> None:
        for _ in range(count):
            self._commit_one(rng)

    def _commit_one(self, rng: random.Random) -> None:
        live = self.live()
        still_open = [one for one in live if not one.is_sealed]
        drawn = rng.random()
        if not still_open or drawn < 0.12:
            self.create(rng)
            return
        chosen = rng.choice(still_open)
        sources = [one for one in live if one is not chosen and one.start_offset == 0]
        if drawn < 0.72:
            self.append(chosen.segment_id, rng.randbytes(rng.choice((0, 1, 10, 60))))
        elif drawn < 0.78:
            self.commit(UpdateAttributes(sequence_number=self.next_sequence, segment_id=chosen.segment_id, values=()))
        elif drawn < 0.84:
            offset = rng.randrange(chosen.start_offset, chosen.length + 1)
            self.commit(Truncate(sequence_number=self.next_sequence, segment_id=chosen.segment_id, offset=offset))
        elif drawn < 0.93 and sources:
            self.merge(chosen.segment_id, rng.choice(sources).segment_id)
        elif drawn < 0.96:
            self.commit(Seal(sequence_number=self.next_sequence, segment_id=chosen.segment_id, offset=chosen.length))
        elif drawn < 0.98:
            self.commit(Delete(sequence_number=self.next_sequence, segment_id=rng.choice(live).segment_id))
        else:
            self.commit(Barrier(sequence_number=self.next_sequence))


class FakeWriterDataSource:
    """``WriterDataSource`` of one owner. It sees the operations up to ``visible`` as committed."""

    def __init__(self, log: CommittedLog) -> None:
        log.epoch += 1
        self.epoch = log.epoch
        self.container_id = 1
        self.recovered_sequence_number = log.sequence
        self.acknowledged = 0
        self._log = log
        self._visible = log.truncated
        self._first = log.truncated
        self.state = _recovered_state(log.before_truncated)
        self.held: dict[int, str] = {}
        self.unreadable: dict[int, str] = {}
        self._grown = asyncio.Event()
        self.show_all()
        for metadata in self.state.segments.values():
            metadata.recovered_length = metadata.length

    def show_all(self) -> None:
        """Commit everything that the log has by now."""
        for operation in self._log.operations[self._visible :]:
            self.state.apply(operation)
        self._visible = len(self._log.operations)
        self._grown.set()

    @property
    def last_sequence(self) -> int:
        return self._log.operations[self._visible - 1].sequence_number if self._visible else 0

    async def read_operations(self, after: int, count_max: int) -> Sequence[Operation]:
        while True:
            first = max(self._first, after)  # sequence numbers are positions, from 1
            if first < self._visible:
                return [replace(one) for one in self._log.operations[first : min(self._visible, first + count_max)]]
            self._grown.clear()
            await self._grown.wait()

    def segment(self, segment_id: int) -> SegmentMetadata | None:
        return self.state.segments.get(segment_id)

    def _root(self, segment_id: int) -> tuple[int, int]:
        """The segment that has the bytes of another by now, and where they begin in it."""
        root, base = segment_id, 0
        while root in self.state.merged_at:
            root, at = self.state.merged_at[root]
            base += at
        return root, base

    def truncated_below(self, segment_id: int) -> int:
        root, base = self._root(segment_id)
        metadata = self.state.segments.get(root)
        return 0 if metadata is None else max(0, metadata.start_offset - base)

    def read_cached(self, segment_id: int, offset: int, length: int) -> list[memoryview]:
        root, base = self._root(segment_id)
        metadata = self.state.segments[root]
        assert not metadata.is_deleted, f"bytes of segment {segment_id} went with {root}"
        assert base + offset >= metadata.start_offset, f"bytes of segment {segment_id} were truncated"
        for position in (offset, offset + length - 1):
            assert not self._is_evictable(segment_id, position), f"byte {position} of {segment_id} may be evicted"
        data = self._log.bytes[segment_id][offset : offset + length]
        assert len(data) == length
        return [memoryview(data)]

    def _is_evictable(self, segment_id: int, offset: int) -> bool:
        metadata = self.state.segments.get(segment_id)
        if metadata is not None and offset < metadata.storage_length:
            return True
        for part in self.state.parts.get(segment_id, ()):
            if part.offset <= offset < part.offset + part.length:
                return self._is_evictable(part.source_id, offset - part.offset)
        return False

    def storage_length_changed(self, segment_id: int, length: int) -> None:
        metadata = self.state.segments[segment_id]
        metadata.set_storage_length(length)

    def sealed_in_storage(self, segment_id: int) -> None:
        metadata = self.state.segments.get(segment_id)
        if metadata is not None:
            metadata.is_sealed_in_storage = True

    def merged_in_storage(self, target_id: int, source_id: int, target_length: int) -> None:
        source = self.state.segments.pop(source_id, None)
        assert source is None or source.is_merged
        target = self.state.segments.get(target_id)
        if target is not None and target_length > target.storage_length:
            target.set_storage_length(target_length)

    def deleted_in_storage(self, segment_id: int) -> None:
        metadata = self.state.segments.pop(segment_id, None)
        assert metadata is None or metadata.is_deleted

    def hold(self, segment_id: int, reason: str) -> None:
        self.held.setdefault(segment_id, reason)

    def free(self, segment_id: int) -> None:
        self.held.pop(segment_id, None)

    def unreadable_reason(self, segment_id: int) -> str | None:
        return self.unreadable.get(segment_id)

    def log_state(self) -> LogState:
        return LogState(bytes(range(16)), self.last_sequence, 1)

    async def acknowledge(self, sequence_number: int) -> None:
        assert sequence_number > self.acknowledged
        assert sequence_number <= self.last_sequence
        await self.check_owner()
        self.acknowledged = sequence_number
        self._log.truncate(sequence_number)

    async def check_owner(self) -> None:
        await asyncio.sleep(0)
        if self.epoch < self._log.epoch:
            raise Fenced(f"epoch {self.epoch} was fenced by {self._log.epoch}")


def _recovered_state(before: State) -> State:
    """As a recovery takes over a checkpoint: all bytes below it are in Tier 2, the dead are forgotten."""
    live = {
        one.segment_id: copy.copy(one) for one in before.segments.values() if not one.is_merged and not one.is_deleted
    }
    for metadata in live.values():
        metadata.storage_length = metadata.length
        metadata.is_sealed_in_storage = metadata.is_sealed
    return State(live)
