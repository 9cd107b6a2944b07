"""Defines the contract of a segment store; one container and a whole store have the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from segment_service.contracts.attributes import AttributeId, AttributeUpdate
from segment_service.contracts.buffer import Buffer

append_bytes_max: Final = 16 * 1024 * 1024
"""Bytes of one append; what fits one wire command."""
read_bytes_max: Final = 2 * 1024 * 1024
"""Bytes that one read answers at most, as on a real store."""


@dataclass(frozen=True, slots=True)
class SegmentProperties:
    """One segment as it is now. Offsets and lengths in bytes; ``length`` counts from offset 0, truncated or not."""

    name: str
    segment_id: int
    start_offset: int
    length: int
    storage_length: int
    is_sealed: bool
    last_modified_ms: int
    attributes: dict[AttributeId, int] = field(default_factory=dict)
    """All of the system's own. Many writers' are left out: ``get_attribute`` knows each."""


class SegmentState(NamedTuple):
    """State of one segment at this moment, as its clients see it."""

    start_offset: int
    length: int
    is_sealed: bool
    last_modified_ms: int


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Bytes of a segment from ``offset`` on, as views on immutable cache blocks.

    ``at_tail``: the read ran into the current end of an open segment (always so when ``data`` is empty there).
    ``end_of_segment``: the read ended at the end of a sealed segment.
    ``has_waited``: the read waited at the tail before it ended.
    """

    offset: int
    data: tuple[memoryview, ...]
    at_tail: bool
    end_of_segment: bool
    has_waited: bool = False

    @property
    def length(self) -> int:
        return sum(len(view) for view in self.data)


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The lengths after a merge."""

    target_length: int
    """Length of the target after this merge."""
    merged_length: int


class SegmentStore(Protocol):
    """Segments: append, read, seal, truncate, merge, attributes.

    Order: operations on one segment take effect in the order in which the calls were *made* (``append`` registers
    before it returns). Durability: a result means that the operation is durable in Tier 1 and visible to readers;
    readers never see bytes that are not durable.

    Errors of every call (all from ``pravega_common.errors``): ``ContainerNotHosted`` (ask the controller again),
    ``ContainerOffline`` and ``Throttled`` (nothing was done), ``SegmentNotFound``, ``UnknownOutcome`` (the container
    went offline while the operation was on its way to Tier 1: it may or may not survive), ``DataCorruption`` (the
    segment is damaged in Tier 2: changes are refused, and reads of the damaged part).
    """

    async def create_segment(self, segment: str, attributes: Sequence[AttributeUpdate] = ()) -> None:
        """Create an empty segment. ``SegmentExists`` if there is one (also a sealed one)."""
        ...

    def append(
        self,
        segment: str,
        data: Sequence[Buffer],
        updates: Sequence[AttributeUpdate] = (),
        *,
        expected_offset: int | None = None,
    ) -> asyncio.Future[int]:
        """Append the joined buffers atomically, with attribute updates in the same durable operation.

        Registers at once, in call order, without awaiting; the future gives the segment's length after the append.
        The buffers must stay unchanged until the future is done. Errors through the future: ``SegmentSealed``,
        ``BadAttributeUpdate`` (checked before the offset), ``BadOffset`` if ``expected_offset`` is not the length.
        """
        ...

    async def read(self, segment: str, offset: int, length_max: int) -> ReadResult:
        """Read up to ``min(length_max, read_bytes_max)`` bytes from ``offset``.

        At or beyond the end of an open segment it waits, without limit of time, until there is data at ``offset``.
        Raises ``SegmentSealed(offset=offset)`` if the segment is sealed while it waits, ``SegmentTruncated`` below
        the start offset, ``BadOffset`` beyond the end of a sealed segment. At the end of a sealed segment: empty
        data with ``end_of_segment``. A container that stops ends waiting reads with empty data and ``at_tail``.
        """
        ...

    def read_in_memory(self, segment: str, offset: int, length_max: int) -> ReadResult | None:
        """Answers as ``read`` where the bytes are in memory, without waiting; None where ``read`` has to find out."""
        ...

    async def get_info(self, segment: str) -> SegmentProperties: ...

    def state_in_memory(self, segment: str) -> SegmentState | None:
        """Answers as ``get_info``, without waiting; None for a segment that has to be looked up.

        Clients ask about a thousand segments twice a second, so it copies no attributes.
        """
        ...

    async def locate_offset(self, segment: str, offset: int) -> int:
        """The smallest known event boundary at or after ``offset``; the segment's length if none is known there.

        Every append block and every merge ends on a boundary, and some of them are remembered (the sparse index in
        ``<segment>#index``, of segments of users' streams only). Below the start offset, what is known from there on;
        at or beyond the length, the length. ``InvalidArgument`` for a negative offset.
        """
        ...

    async def get_attribute(self, segment: str, attribute_id: AttributeId) -> int:
        """The value, or ``NULL_ATTRIBUTE_VALUE``."""
        ...

    async def update_attributes(self, segment: str, updates: Sequence[AttributeUpdate]) -> None:
        """All or none. ``BadAttributeUpdate``, ``SegmentSealed``."""
        ...

    async def seal(self, segment: str) -> int:
        """Refuse further appends; returns the final length. ``SegmentSealed`` if it is sealed already."""
        ...

    async def truncate(self, segment: str, offset: int) -> None:
        """Raise the start offset. ``SegmentTruncated`` below the current start or beyond the length."""
        ...

    async def delete(self, segment: str) -> None: ...

    async def merge(self, target: str, source: str, updates: Sequence[AttributeUpdate] = ()) -> MergeResult:
        """Seal the source if it is open, append all of it to the target atomically, and let the source disappear.

        ``SegmentNotFound`` with the name of the missing one, ``SegmentSealed`` if the target is sealed,
        ``SegmentTruncated`` if the source was truncated, ``BadAttributeUpdate`` against the target's attributes,
        ``UnsupportedOperation`` if the source is the segment of a table.
        """
        ...


class BackPressure(Protocol):
    """Bytes accepted but not yet in Tier 2, for a whole store, against a named limit."""

    @property
    def is_open(self) -> bool:
        """Whether more bytes may be taken from sockets now."""
        ...

    async def wait_open(self) -> None: ...
