"""Defines all that the connector asks of a stream store, as one interface.

Two implementations: ``gateway/service.py`` (a Pravega cluster, ours or another) and the fake of the tests. Both pass
``tests/contract/test_stream_gateway.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pravega_common.model.reader_groups import GroupRegistration
    from pravega_common.model.segments import SegmentInfo, SegmentOffsets, SegmentRange, Successor
    from pravega_common.model.stream_configuration import StreamConfiguration
    from pravega_common.model.transaction_sets import Registration, SetDecision, Sink, TransactionSet
    from pravega_common.model.transactions import NewTransaction
    from pravega_spark.ledger.batch import BatchCommit, BatchRegistration
    from pravega_spark.rows.arrays import Int64s
    from pravega_streams.credentials import Credentials
    from pravega_streams.event.block_writer import Piece
    from pravega_streams.segment.event_index import EventCount, ReadTarget


class SegmentWriter(Protocol):
    """Appends to one segment; ``BlockWriter`` says more."""

    @property
    def gathered_bytes(self) -> int:
        """The bytes that ``write`` took and that wait for more before they are sent."""
        ...

    def write(self, data: memoryview, event_count: int, tag: Any = None) -> None: ...

    def start_flush(self) -> None: ...

    def flush(self) -> None: ...

    def unacknowledged(self) -> list[Piece]: ...

    def close(self) -> None: ...


class RangeSource(Protocol):
    """The bytes of one range of a segment; ``RangeReader`` says more."""

    position: int

    def read_into(self, target: memoryview) -> int:
        """Returns the bytes written, 0 only at the end of the range; fewer than the target takes at any time before."""
        ...

    def close(self) -> None: ...


class Boundaries(Protocol):
    """The event boundaries that a store knows of one segment, at the time of the call; ``EventIndex`` says more."""

    def offset_at_or_after(self, offset: int) -> int: ...

    def offset_at_time(self, time_ms: int) -> int: ...

    def offset_before_time(self, time_ms: int) -> int: ...

    def times_behind(self, offsets: Int64s) -> Int64s: ...

    def events_between(self, start: int, end: int) -> EventCount: ...

    def advance(self, start: int, events_max: int) -> ReadTarget: ...


class AppendWatch(Protocol):
    """Watches the ends of segments; ``pravega_streams/segment/tail_watch.py`` says more.

    A hint: it may tell of bytes that are not there, and miss some.
    """

    def begin(self, offsets: Mapping[str, int]) -> bool:
        """Watch segments, by qualified name, for bytes at an offset each. False where it cannot."""
        ...

    def wait(self, wait_s: float) -> bool:
        """Wait until there may be something: True; or for as long."""
        ...


class StreamGateway(Protocol):
    """A client of one stream store.

    Its calls block. Calls about scopes, streams and transactions may come from several threads; bytes from one only.

    Errors: ``ScopeNotFound``, ``StreamNotFound``, ``SegmentNotFound``, ``Unavailable``; methods name
    what else they raise.
    """

    @property
    def credentials(self) -> Credentials | None:
        """The credentials that tasks need, which may be pickled; None for those of their own environment, if any."""
        ...

    def cluster_time_ms(self) -> int | None:
        """The clock of the cluster now, milliseconds since 1970, by which events have their times.

        None where the store does not tell it (a plain Pravega).
        """
        ...

    def create_scope(self, scope: str) -> bool:
        """True if the scope is new."""
        ...

    def scope_exists(self, scope: str) -> bool: ...

    def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        """True if the stream is new; an existing one keeps its configuration."""
        ...

    def stream_exists(self, scope: str, stream: str) -> bool: ...

    def list_streams(self, scope: str) -> list[str]:
        """The streams of a scope, without internal ones."""
        ...

    def scale_stream(
        self, scope: str, stream: str, sealed: Sequence[int], new_ranges: Sequence[tuple[float, float]]
    ) -> list[SegmentRange]: ...

    def truncate_stream(self, scope: str, stream: str, cut: SegmentOffsets) -> None: ...

    def seal_stream(self, scope: str, stream: str) -> None: ...

    def delete_stream(self, scope: str, stream: str) -> None:
        """Delete a sealed stream."""
        ...

    def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        """The first position that is still there."""
        ...

    def tail_cut(self, scope: str, stream: str) -> SegmentOffsets:
        """The present end of every open segment; of a sealed stream, the ends of its last segments."""
        ...

    def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        """The open segments; none for a sealed stream."""
        ...

    def epoch_segments(self, scope: str, stream: str, epoch: int) -> list[SegmentRange]:
        """``NotFound`` for an epoch that never was, and for one before the head that is forgotten."""
        ...

    def segments_between(self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        """Ids of all segments between two cuts, with those of the cuts."""
        ...

    def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        """Empty while the segment is open, and at the end of a sealed stream."""
        ...

    def segment_info(self, scope: str, stream: str, segment_id: int) -> SegmentInfo: ...

    def segment_infos(self, scope: str, stream: str, segment_ids: Iterable[int]) -> dict[int, SegmentInfo]:
        """The same of many segments at a cost of a few calls a store; those that are not there are left out."""
        ...

    def segment_infos_of_streams(
        self, segment_ids: Mapping[tuple[str, str], Iterable[int]]
    ) -> dict[tuple[str, str], dict[int, SegmentInfo]]:
        """The same of many streams (scope and stream) together, at the same cost; each stream has its answer."""
        ...

    def locate_offset(self, scope: str, stream: str, segment_id: int, offset: int) -> int:
        """The smallest known event boundary at or after ``offset``; ``UnsupportedOperation`` where none is known."""
        ...

    def boundaries(self, scope: str, stream: str, segment_id: int) -> Boundaries:
        """``UnsupportedOperation`` where the store keeps no index of them (Pravega before 0.14)."""
        ...

    def boundaries_of_many(self, scope: str, stream: str, segment_ids: Sequence[int]) -> Mapping[int, Boundaries]:
        """The same of many segments at a cost of a few round trips a store.

        Some may be left out, those without an index always: ``boundaries`` says why.
        """
        ...

    def locate_offsets(self, scope: str, stream: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """``locate_offset`` of many segments at a cost of a few round trips a store; some may be left out."""
        ...

    def read_heads(self, scope: str, stream: str, ranges: Mapping[int, tuple[int, int]]) -> Mapping[int, memoryview]:
        """The bytes that ranges (start and end) of many segments begin with, at a cost of a few round trips a store.

        The ranges must have been written; a range may come in part, or be left out.
        """
        ...

    def create_transaction(self, scope: str, stream: str, lease_ms: int) -> NewTransaction: ...

    def abort_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None:
        """``TransactionFailed`` if it is committed, ``NotFound`` if it is long gone."""
        ...

    def register_transactions(self, registration: BatchRegistration) -> Registration:
        """Bind transactions to their batch, if any, and keep all of the batch's transactions open."""
        ...

    def commit_transaction_set(self, commit: BatchCommit) -> SetDecision:
        """Decide a batch, whole or not at all.

        Where the controller cannot, an earlier attempt's fate may not be known: ``BatchUnresolved``, unless
        ``commit.on_unresolved`` is ``skip`` or ``replay``.
        """
        ...

    def transaction_set(self, sink: Sink, batch_id: int, wait_ms: int = 0) -> tuple[TransactionSet, int]:
        """The batch's set, and the last committed batch id of the sink (-1 if none).

        ``wait_ms``: a controller that is about to make the set readable answers when it is, or after that time.
        """
        ...

    def note_time(self, scope: str, stream: str, writer_id: str, position: SegmentOffsets, time_ms: int) -> None:
        """Report a writer's time, with a position behind its events. ``InvalidArgument`` if one goes back."""
        ...

    def subscribe(self, scope: str, name: str, streams: Collection[tuple[str, str]]) -> GroupRegistration:
        """Register a subscriber of these streams and no others; it may be there already.

        Once it has released a position in a stream, retention keeps what comes after. ``InvalidArgument`` for a bad
        name, or one that a reader group has.
        """
        ...

    def release(self, subscription: GroupRegistration, scope: str, stream: str, cut: SegmentOffsets) -> None:
        """Let retention drop what lies before a cut, as far as this subscriber goes.

        ``NotFound`` for a subscriber that is gone, ``InvalidArgument`` for a cut before the one released last.
        """
        ...

    def open_writer(self, segment: str) -> SegmentWriter:
        """A writer to a segment or a transaction segment, given by its qualified name."""
        ...

    def open_range(self, segment: str, start: int, end: int) -> RangeSource: ...

    def open_watch(self) -> AppendWatch:
        """A watch of the ends of segments, which is the caller's; it ends with its process."""
        ...

    def known_store(self, segment: str) -> str:
        """The address of the store that served the segment when it was last asked; empty if that is not known.

        Nobody is asked: it is a hint, for ``expect_store`` in another process.
        """
        ...

    def expect_store(self, segment: str, store: str) -> None:
        """Look for the segment at this store first (``known_store``). A wrong one costs an attempt, no answer."""
        ...

    def close(self) -> None: ...
