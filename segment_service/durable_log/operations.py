"""The operations of a container's log: what is decided, in which order, once durable for ever.

An operation is created by the container without ``sequence_number`` and without assigned offsets; the operation
processor fills these in while it validates, before the operation is serialised. Sequence numbers strictly increase
over the life of the container and are never reused. Serialised forms: ``serializer.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from segment_service.contracts.attributes import AttributeId, AttributeUpdate
from segment_service.contracts.segment_store import Buffer

AttributeValues = Sequence[tuple[AttributeId, int]]


@dataclass(slots=True, kw_only=True)
class Operation:
    sequence_number: int = 0


@dataclass(slots=True, kw_only=True)
class MapSegment(Operation):
    """A new, empty segment under a fresh id (ids are never reused); also how a transaction's segment begins."""

    name: str
    segment_id: int = 0
    created_ms: int = 0
    attributes: dict[AttributeId, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class SegmentOperation(Operation):
    """An operation on one existing segment."""

    segment_id: int


@dataclass(slots=True, kw_only=True)
class Append(SegmentOperation):
    """Bytes at ``offset`` (assigned). ``data`` is ``None`` once the bytes live in the read index: the cached form."""

    data: Sequence[Buffer] | None
    length: int
    updates: Sequence[AttributeUpdate] = ()
    values: AttributeValues = ()
    expected_offset: int | None = None
    offset: int = -1
    time_ms: int = 0


@dataclass(slots=True, kw_only=True)
class Seal(SegmentOperation):
    """No byte follows ``offset``, the final length (assigned)."""

    offset: int = -1


@dataclass(slots=True, kw_only=True)
class Truncate(SegmentOperation):
    offset: int


@dataclass(slots=True, kw_only=True)
class Merge(SegmentOperation):
    """All of ``source_id`` joins ``segment_id`` (the target) at ``offset``; the source is gone afterwards.

    ``offset`` and ``length`` are assigned. Validation requires the source sealed; the container adds the ``Seal``
    in front when it is not.
    """

    source_id: int
    updates: Sequence[AttributeUpdate] = ()
    values: AttributeValues = ()
    offset: int = -1
    length: int = -1
    time_ms: int = 0


@dataclass(slots=True, kw_only=True)
class UpdateAttributes(SegmentOperation):
    updates: Sequence[AttributeUpdate] = ()
    values: AttributeValues = ()


@dataclass(slots=True, kw_only=True)
class Delete(SegmentOperation):
    """The segment is gone; its name may be used again, its id never."""


@dataclass(slots=True, kw_only=True)
class Checkpoint(Operation):
    """A snapshot of the whole container metadata, serialised (``container/snapshot.py``). Begins a new frame: a
    truncation point of Tier 1."""

    snapshot: bytes = b""


@dataclass(slots=True, kw_only=True)
class Barrier(Operation):
    """Changes nothing. Its acknowledgement proves that this owner was not fenced when it became durable."""
