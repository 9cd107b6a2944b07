"""Defines the operations of a container's log: every change of its state, in the order that counts.

An operation says which segments it is about by id and has all its offsets and values: a replay decides nothing. The
requests of callers, which name segments, are in ``durable_log/requests.py``; their validation turns them into
operations. Sequence numbers strictly increase over the life of the container and are never reused. The serialised
forms are in ``durable_log/serializer.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from segment_service.contracts.attributes import AttributeId
from segment_service.contracts.buffer import Buffer

AttributeValues = Sequence[tuple[AttributeId, int]]


@dataclass(slots=True, kw_only=True)
class Operation:
    """One entry of a container's log."""

    sequence_number: int


@dataclass(slots=True, kw_only=True)
class SegmentOperation(Operation):
    """An operation on one segment."""

    segment_id: int


@dataclass(slots=True, kw_only=True)
class MapSegment(SegmentOperation):
    """A new, empty segment under a fresh id (ids are never reused); also how a transaction's segment begins."""

    name: str
    created_ms: int = 0
    attributes: dict[AttributeId, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Append(SegmentOperation):
    """Bytes at ``offset``. ``data`` is ``None`` once the bytes live in the read index: the cached form."""

    offset: int
    length: int
    data: Sequence[Buffer] | None
    values: AttributeValues = ()
    time_ms: int = 0


@dataclass(slots=True, kw_only=True)
class Seal(SegmentOperation):
    """No byte follows ``offset``, the final length."""

    offset: int


@dataclass(slots=True, kw_only=True)
class Truncate(SegmentOperation):
    """The segment starts at ``offset`` from now on."""

    offset: int


@dataclass(slots=True, kw_only=True)
class Merge(SegmentOperation):
    """All ``length`` bytes of ``source_id`` join ``segment_id`` (the target) at ``offset``; the source is gone then.

    The source is sealed: the log has a ``Seal`` in front of the merge of a segment that was open.
    """

    source_id: int
    offset: int
    length: int
    values: AttributeValues = ()
    time_ms: int = 0


@dataclass(slots=True, kw_only=True)
class UpdateAttributes(SegmentOperation):
    """New values of some attributes."""

    values: AttributeValues


@dataclass(slots=True, kw_only=True)
class Delete(SegmentOperation):
    """The segment is gone; its name may be used again, its id never."""


@dataclass(slots=True, kw_only=True)
class ActivateSegment(Operation):
    """A segment that was only in the metadata table, as it is there: operations on it follow.

    A replay that began before the segment left memory knows it already, as the same.
    """

    segment_id: int
    record: bytes
    """``metadata/segment_record.py``; empty once it is applied."""


@dataclass(slots=True, kw_only=True)
class Checkpoint(Operation):
    """A snapshot of the container's metadata (``metadata/snapshot.py``).

    It begins a new data frame, so Tier 1 can be truncated there.
    """

    snapshot: bytes


@dataclass(slots=True, kw_only=True)
class Barrier(Operation):
    """Changes nothing. Its acknowledgement proves that this owner was not fenced when it became durable."""
