"""Defines the stored records of scopes and streams, and their keys (docs/controller-api.md 3).

Every record is immutable; a change is a new record written by compare-and-set. Times are milliseconds since 1970.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

from pravega_common.model.scope_quota import ScopeQuota
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_id, segment_name

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Key(Generic[R]):
    """A key of a stream's metadata table and the class of the record behind it."""

    name: str
    record: type[R]


class StreamState(enum.StrEnum):
    CREATING = "creating"
    ACTIVE = "active"
    UPDATING = "updating"
    SCALING = "scaling"
    COMMITTING_TRANSACTIONS = "committing_transactions"
    TRUNCATING = "truncating"
    SEALING = "sealing"
    SEALED = "sealed"


DELETION: Final = "deletion"
"""The holder of a stream that is being deleted; its state is sealed."""

_BUSY: Final = (
    StreamState.UPDATING,
    StreamState.SCALING,
    StreamState.COMMITTING_TRANSACTIONS,
    StreamState.TRUNCATING,
)
_TRANSITIONS: Final[dict[StreamState, frozenset[StreamState]]] = {
    StreamState.CREATING: frozenset({StreamState.ACTIVE}),
    StreamState.ACTIVE: frozenset({*_BUSY, StreamState.SEALING, StreamState.SEALED}),
    **{state: frozenset({StreamState.ACTIVE}) for state in _BUSY},
    StreamState.SEALING: frozenset({StreamState.SEALED}),
    StreamState.SEALED: frozenset(),
}


def may_move(old: StreamState, new: StreamState) -> bool:
    """Whether the state machine of docs/controller-api.md 3.1 allows the step; staying is always allowed."""
    return old is new or new in _TRANSITIONS[old]


@dataclass(frozen=True, slots=True)
class ScopeRecord:
    scope_id: str
    """Part of the names of the scope's tables, so that a new scope of the same name starts empty."""
    created_ms: int
    deleting: bool = False
    holder: str = ""
    """The request that opens the scope again if it has members; empty for a scope that is deleted with them."""
    tags_indexed: bool = False
    """Whether the index of tags has all streams; that of a scope of a former version is made when it is asked for."""
    quota: ScopeQuota | None = None
    is_counted: bool = False
    """Whether the use has all streams, so that the quota is held: those from before the quota are counted first."""
    quota_order: int = 0
    """Raised by every request that changes the quota, so that one that is repeated late changes nothing."""
    quota_request: str = ""
    """The request that changed the quota last: of two that began at once, it is the one with the greater id."""
    record_version: ClassVar[int] = 2

    @property
    def written_version(self) -> int:
        """2 with a quota: former versions would make streams without counting them."""
        return 1 if self.quota is None else 2


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """A stream in its scope's list."""

    stream_id: str
    """Part of the names of the stream's tables, so that a re-created stream shares nothing with the old one."""
    created_ms: int
    tags: tuple[str, ...] = ()
    deleting: bool = False
    """Set before the stream's tables go: a creation that finds the entry must not make them again."""
    group_id: str = ""
    """The reader group whose creation made the stream of its state, or took it over; empty for all other streams."""


@dataclass(frozen=True, slots=True)
class DeletedStream:
    """The record of one name by former versions; now ``deleted_streams.py`` keeps many names in one."""

    next_segment_number: int
    """A stream of the same name starts here: segment names are never reused."""


@dataclass(frozen=True, slots=True)
class ConfigurationRecord:
    configuration: StreamConfiguration
    updates_promised: int = 0
    """Tickets given to updates; each gets the next one."""
    updates_applied: int = 0
    """Ticket of the latest update that was carried out: an older one that turns up again changes nothing."""
    previous: StreamConfiguration | None = None
    """What the latest update replaced, for the case that it is refused after all."""


@dataclass(frozen=True, slots=True)
class StateRecord:
    state: StreamState
    holder: str = ""
    """The request that keeps others away by a working state; empty for commits, which all share theirs."""
    round: str = ""
    """The run that wrote this, ``<instance>/<number>``, never used twice: only this run may end the state."""

    @property
    def is_deleting(self) -> bool:
        return self.holder == DELETION


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    number: int
    creation_epoch: int
    created_ms: int
    key_start: float
    key_end: float

    @property
    def segment_id(self) -> int:
        return segment_id(self.number, self.creation_epoch)

    def overlaps(self, other: SegmentRecord) -> bool:
        return self.key_start < other.key_end and self.key_end > other.key_start

    def name(self, scope: str, stream: str) -> str:
        return segment_name(scope, stream, self.segment_id)


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """A set of segments that covers the key space, sorted by key. Never changes once written."""

    epoch: int
    reference_epoch: int
    """Another epoch's number if this is the duplicate a rolling commit made of it, else ``epoch``."""
    segments: tuple[SegmentRecord, ...]
    created_ms: int
    splits: int = 0
    merges: int = 0
    """Both counted since the stream was created."""

    @property
    def segment_ids(self) -> tuple[int, ...]:
        return tuple(segment.segment_id for segment in self.segments)

    def find(self, identifier: int) -> SegmentRecord | None:
        return next((segment for segment in self.segments if segment.segment_id == identifier), None)

    def overlapping(self, segment: SegmentRecord) -> tuple[SegmentRecord, ...]:
        return tuple(other for other in self.segments if other.overlaps(segment))

    def names(self, scope: str, stream: str) -> list[str]:
        return [segment.name(scope, stream) for segment in self.segments]


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """The part of a stream's epochs that has records, and the part that is to lose them after a truncation.

    ``removed_till <= oldest_epoch <= next_oldest`` while a truncation waits; an epoch that transactions still need has
    its record below ``oldest_epoch``.
    """

    oldest_epoch: int = 0
    """Epochs before this one, and the segments that were replaced in them, are not answered for any more."""
    removed_till: int = 0
    """Epochs before this one have no records."""
    next_oldest: int = 0
    """The oldest epoch once the truncation that set it is old enough; not above ``oldest_epoch`` for none."""
    next_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class CurrentEpochRecord:
    """The number of the epoch that is current; its segments are in the record of that epoch, which never changes.

    Former versions kept a copy of the epoch here. It has its number in the same field, so it is read as one. They would
    take segments without records for the end of the stream, so they are kept from a stream that lost some.
    """

    epoch: int
    history: HistoryRecord = HistoryRecord()
    record_version: ClassVar[int] = 2

    @property
    def written_version(self) -> int:
        return 2 if self.history.oldest_epoch else 1


@dataclass(frozen=True, slots=True)
class SealedSegmentRecord:
    """Written before the stores seal the segment, so that a reader that finds it sealed finds its successors."""

    replaced_in_epoch: int
    """The first epoch without the segment."""
    size: int = -1
    """Length in bytes at the seal; -1 while it is being sealed."""


@dataclass(frozen=True, slots=True)
class EpochTransitionRecord:
    """A scale that was accepted and is not finished. ``EMPTY_TRANSITION`` otherwise."""

    active_epoch: int
    new_epoch: int
    segments_to_seal: tuple[int, ...]
    new_segments: tuple[SegmentRecord, ...]
    requested_ms: int
    manual: bool = True
    request_id: str = ""

    @property
    def is_empty(self) -> bool:
        return self.new_epoch < 0


EMPTY_TRANSITION: Final = EpochTransitionRecord(-1, -1, (), (), 0)


@dataclass(frozen=True, slots=True)
class TruncationRecord:
    """The head of the stream: segment id to offset. Empty cut: the stream was never truncated."""

    cut: dict[int, int] = field(default_factory=dict)
    size_till: int = 0
    """Bytes of the stream before the cut."""
    updating: bool = False
    """Whether segments before the cut may still exist."""
    since: dict[int, int] = field(default_factory=dict)
    """While updating: the cut before which no segment exists any more; empty for the start of the stream."""


@dataclass(frozen=True, slots=True)
class RetentionReference:
    """A stream cut taken at the tail; the cut itself is under ``retention_cut_key(recorded_ms)``."""

    recorded_ms: int
    size_till: int
    """Bytes written to the stream up to the cut, since it was created."""


@dataclass(frozen=True, slots=True)
class RetentionCutRecord:
    """Never changes once written. Apart from the set, which would outgrow a table's values with many segments."""

    cut: dict[int, int]


@dataclass(frozen=True, slots=True)
class RetentionSetRecord:
    """Oldest first."""

    references: tuple[RetentionReference, ...] = ()
    dropped: tuple[int, ...] = ()
    """The times of cuts that are not referred to any more and may still be on record."""


@dataclass(frozen=True, slots=True)
class ColdMark:
    """A store's report that a segment is cold."""

    marked_ms: int
    until_ms: int = 0
    """When it ends; 0 for that of a segment without any traffic, which holds until there is some."""

    def is_over(self, now_ms: int) -> bool:
        return self.until_ms != 0 and self.until_ms <= now_ms


@dataclass(frozen=True, slots=True)
class ColdSegmentsRecord:
    """The marks of a stream's cold segments by their ids; at most one for each segment of the current epoch."""

    marks: dict[int, ColdMark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubscriberRecord:
    subscriber: str
    """``<scope>/<reader group>``."""
    group_id: str
    generation: int
    cut: dict[int, int] = field(default_factory=dict)
    """Empty: no constraint on truncation yet."""
    updated_ms: int = 0
    """When the cut was published; 0: before the group had this generation, which may go back behind it."""


@dataclass(frozen=True, slots=True)
class SubscribersRecord:
    subscribers: dict[str, SubscriberRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriterMark:
    timestamp: int
    position: dict[int, int]
    is_alive: bool = True
    noted_ms: int = 0
    """The last report, by the clock of the controller that took it."""


@dataclass(frozen=True, slots=True)
class WriterMarksRecord:
    """The marks of all writers in one record, as they were kept before each had a key of its own."""

    marks: dict[str, WriterMark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MarkedStreamRecord:
    """An entry of the index of streams that have writers' marks."""

    noted_ms: int


@dataclass(frozen=True, slots=True)
class RetainedStreamRecord:
    """An entry of the index of streams that have a retention policy."""

    stream_id: str
    """As it was when the entry was put, which spares a look into the scope's list; the stream may be another by now."""


# ---- keys of a stream's metadata table -------------------------------------------------------------------------------

STATE: Final = Key("state", StateRecord)
CONFIGURATION: Final = Key("configuration", ConfigurationRecord)
CURRENT_EPOCH: Final = Key("currentEpoch", CurrentEpochRecord)
TRANSITION: Final = Key("epochTransition", EpochTransitionRecord)
TRUNCATION: Final = Key("truncation", TruncationRecord)
RETENTION_SET: Final = Key("retentionSet", RetentionSetRecord)
SUBSCRIBERS: Final = Key("subscribers", SubscribersRecord)
WRITER_MARKS: Final = Key("writerMarks", WriterMarksRecord)
COLD_SEGMENTS: Final = Key("coldSegments", ColdSegmentsRecord)

_EPOCH_PREFIX: Final = "epoch/"


def epoch_key(epoch: int) -> Key[EpochRecord]:
    return Key(f"{_EPOCH_PREFIX}{epoch}", EpochRecord)


def is_epoch_key(key: Key[Any]) -> bool:
    """Epoch records never change, so they may be kept in memory for as long as the stream exists."""
    return key.name.startswith(_EPOCH_PREFIX)


def sealed_segment_key(identifier: int) -> Key[SealedSegmentRecord]:
    return Key(f"sealed/{identifier}", SealedSegmentRecord)


def retention_cut_key(recorded_ms: int) -> Key[RetentionCutRecord]:
    return Key(f"retentionCut/{recorded_ms}", RetentionCutRecord)
