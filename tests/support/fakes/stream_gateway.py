"""A fake stream store, for tests of everything above ``StreamGateway``.

State is one SQLite file in a directory, so that Spark's many processes see the same streams. No leases run out here and
no process fails; a scale takes effect at once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from controller_service.sets.sink_secrets import hash_of, is_stranger, refusal
from pravega_common.errors import (
    AccessDenied,
    InvalidArgument,
    NotFound,
    ScopeNotFound,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    StreamNotFound,
)
from pravega_common.event_index import IndexRecord
from pravega_common.invariants import check
from pravega_common.model.reader_groups import GroupRegistration, ReaderGroupRetention
from pravega_common.model.segments import SegmentInfo, SegmentOffsets, SegmentRange, Successor
from pravega_common.model.sink_runs import SinkRuns
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transaction_sets import (
    CommitStatus,
    RegisterStatus,
    Registration,
    SetDecision,
    SetMember,
    SetState,
    Sink,
    TransactionSet,
)
from pravega_common.model.transactions import NewTransaction
from pravega_common.names import (
    is_transaction_segment,
    parse_segment_name,
    scoped_name,
    segment_epoch,
    segment_id,
    segment_name,
    segment_number,
)
from pravega_spark.ledger.batch import BatchCommit, BatchRegistration
from pravega_spark.rows.arrays import Int64s
from pravega_streams import errors
from pravega_streams.batch.range_reader import request_bytes_max
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.event.block_writer import Piece
from pravega_streams.segment.event_index import EventCount, ReadTarget, time_unknown

renewal_ms: Final = 60_000
busy_time_max_s: Final = 60.0

_TABLES: Final = """
CREATE TABLE scopes (name TEXT PRIMARY KEY);
CREATE TABLE streams (scope TEXT, name TEXT, epoch INT, sealed INT, PRIMARY KEY (scope, name));
CREATE TABLE epochs (stream TEXT, epoch INT, segment_id INT, low REAL, high REAL);
CREATE TABLE segments (name TEXT PRIMARY KEY, stream TEXT, segment_id INT, low REAL, high REAL, sealed INT, start INT);
CREATE TABLE blocks (segment TEXT, start INT, data BLOB, events INT, time_ms INT, PRIMARY KEY (segment, start));
CREATE TABLE transactions (id TEXT PRIMARY KEY, stream TEXT, epoch INT, state TEXT, sink TEXT, batch INT);
CREATE TABLE sinks (sink TEXT PRIMARY KEY, last_batch INT, runs TEXT);
CREATE TABLE secrets (sink TEXT PRIMARY KEY, hash TEXT);
CREATE TABLE subscribers (name TEXT, stream TEXT, id TEXT, cut TEXT, PRIMARY KEY (name, stream));
CREATE TABLE marks (stream TEXT, writer TEXT, time_ms INT, position TEXT, PRIMARY KEY (stream, writer));
CREATE TABLE deleted (stream TEXT PRIMARY KEY, next_number INT);
CREATE TABLE sets (sink TEXT, batch INT, record TEXT, PRIMARY KEY (sink, batch));
"""


address_scheme: Final = "directory"


def open_address(address: str | ControllerAddress) -> FakeGateway:
    """The fake over the directory of an address ``directory:///some/path``."""
    assert isinstance(address, str)
    return FakeGateway(address.removeprefix(f"{address_scheme}://"))


class FakeGateway:
    """See ``StreamGateway``. Two of them over one directory are two clients of one store."""

    credentials = None
    """A directory asks nobody who they are."""

    def __init__(self, directory: str, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.now_ms = now_ms
        self._path = Path(directory) / "streams.sqlite"
        self._local = threading.local()
        Path(directory).mkdir(parents=True, exist_ok=True)
        with self._change() as store:
            if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'scopes'").fetchone():
                for statement in filter(str.strip, _TABLES.split(";")):
                    store.execute(statement)

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One transaction of the file; all others wait."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self._path, timeout=busy_time_max_s, isolation_level=None)
            connection.execute("PRAGMA synchronous = OFF")
            self._local.connection = connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def close(self) -> None:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def cluster_time_ms(self) -> int | None:
        return self.now_ms()

    # Scopes and streams

    def create_scope(self, scope: str) -> bool:
        with self._change() as store:
            return store.execute("INSERT OR IGNORE INTO scopes VALUES (?)", (scope,)).rowcount > 0

    def scope_exists(self, scope: str) -> bool:
        with self._change() as store:
            return bool(store.execute("SELECT 1 FROM scopes WHERE name = ?", (scope,)).fetchone())

    def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        if not self.scope_exists(scope):
            raise ScopeNotFound(f"scope {scope} does not exist")
        with self._change() as store:
            if store.execute("SELECT 1 FROM streams WHERE scope = ? AND name = ?", (scope, stream)).fetchone():
                return False
            store.execute("INSERT INTO streams VALUES (?, ?, 0, 0)", (scope, stream))
            count = configuration.scaling.min_segments
            ranges = [(index / count, (index + 1) / count) for index in range(count)]
            row = store.execute("SELECT next_number FROM deleted WHERE stream = ?", (f"{scope}/{stream}",)).fetchone()
            _begin_epoch(store, scope, stream, 0, [], list(enumerate(ranges, row[0] if row else 0)))
            return True

    def stream_exists(self, scope: str, stream: str) -> bool:
        with self._change() as store:
            row = store.execute("SELECT 1 FROM streams WHERE scope = ? AND name = ?", (scope, stream)).fetchone()
            return row is not None

    def list_streams(self, scope: str) -> list[str]:
        with self._change() as store:
            rows = store.execute("SELECT name FROM streams WHERE scope = ? ORDER BY name", (scope,)).fetchall()
            return [name for (name,) in rows]

    def scale_stream(
        self, scope: str, stream: str, sealed: Sequence[int], new_ranges: Sequence[tuple[float, float]]
    ) -> list[SegmentRange]:
        with self._change() as store:
            epoch = _epoch(store, scope, stream) + 1
            kept = [item for item in _epoch_segments(store, scope, stream, epoch - 1) if item.segment_id not in sealed]
            query = "SELECT MAX(segment_id & 4294967295) FROM segments WHERE stream = ?"
            first = store.execute(query, (f"{scope}/{stream}",)).fetchone()[0] + 1
            for item in sealed:
                name = segment_name(scope, stream, item)
                store.execute("UPDATE segments SET sealed = 1 WHERE name = ?", (name,))
            store.execute("UPDATE streams SET epoch = ? WHERE scope = ? AND name = ?", (epoch, scope, stream))
            return _begin_epoch(store, scope, stream, epoch, kept, list(enumerate(new_ranges, first)))

    def truncate_stream(self, scope: str, stream: str, cut: SegmentOffsets) -> None:
        older = set(self.segments_between(scope, stream, {}, cut)) - set(cut)
        with self._change() as store:
            for item in older:
                store.execute("DELETE FROM segments WHERE name = ?", (segment_name(scope, stream, item),))
            for item, offset in cut.items():
                name = segment_name(scope, stream, item)
                store.execute("UPDATE segments SET start = ? WHERE name = ?", (offset, name))

    def forget_epochs(self, scope: str, stream: str, oldest: int) -> None:
        """Forget the epochs before ``oldest``, as controllers do with those from before the head of a stream."""
        with self._change() as store:
            store.execute("DELETE FROM epochs WHERE stream = ? AND epoch < ?", (f"{scope}/{stream}", oldest))

    def seal_stream(self, scope: str, stream: str) -> None:
        with self._change() as store:
            store.execute("UPDATE streams SET sealed = 1 WHERE scope = ? AND name = ?", (scope, stream))
            store.execute("UPDATE segments SET sealed = 1 WHERE stream = ?", (f"{scope}/{stream}",))

    def delete_stream(self, scope: str, stream: str) -> None:
        """A stream of the same name gets other segment numbers later, as in Pravega."""
        name = f"{scope}/{stream}"
        with self._change() as store:
            store.execute("DELETE FROM streams WHERE scope = ? AND name = ?", (scope, stream))
            query = "SELECT MAX(segment_id & 4294967295) FROM segments WHERE stream = ?"
            last = store.execute(query, (name,)).fetchone()[0]
            store.execute("INSERT OR REPLACE INTO deleted VALUES (?, ?)", (name, last + 1))
            for (segment,) in store.execute("SELECT name FROM segments WHERE stream = ?", (name,)).fetchall():
                store.execute("DELETE FROM blocks WHERE segment = ?", (segment,))
            store.execute("DELETE FROM segments WHERE stream = ?", (name,))
            store.execute("DELETE FROM epochs WHERE stream = ?", (name,))

    # Positions

    def head_cut(self, scope: str, stream: str) -> dict[int, int]:
        with self._change() as store:
            for epoch in _epochs(store, scope, stream):
                cut = {}
                for item in _epoch_segments(store, scope, stream, epoch):
                    info = _info(store, item.name)
                    if info is None:
                        break
                    cut[item.segment_id] = info.start_offset
                else:
                    return cut
        raise StreamNotFound(f"{scope}/{stream} has no segments")

    def tail_cut(self, scope: str, stream: str) -> dict[int, int]:
        with self._change() as store:
            segments = _epoch_segments(store, scope, stream, _epoch(store, scope, stream))
            return {item.segment_id: _present(store, item.name).length for item in segments}

    def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        with self._change() as store:
            epoch = _epoch(store, scope, stream)
            query = "SELECT sealed FROM streams WHERE scope = ? AND name = ?"
            if store.execute(query, (scope, stream)).fetchone()[0]:
                return []
            return _epoch_segments(store, scope, stream, epoch)

    def epoch_segments(self, scope: str, stream: str, epoch: int) -> list[SegmentRange]:
        with self._change() as store:
            if epoch not in _epochs(store, scope, stream):
                raise NotFound(f"stream {scope}/{stream} has no epoch {epoch}, or it was truncated")
            return _epoch_segments(store, scope, stream, epoch)

    def segments_between(self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        with self._change() as store:
            epochs = [_epoch_segments(store, scope, stream, epoch) for epoch in _epochs(store, scope, stream)]
        everything = {item.segment_id: item for segments in epochs for item in segments}
        if unknown := {*start, *end} - everything.keys():
            raise InvalidArgument(f"segments {sorted(unknown)} are not of stream {scope}/{stream}, or were truncated")
        if any(_lies_before(item, end[item], everything, start) for item in end):
            raise InvalidArgument(f"cut {end} lies before {start} in stream {scope}/{stream}")
        low = start or {item.segment_id: 0 for item in epochs[0]}
        high = end or {item.segment_id: 0 for item in epochs[-1]}

        def between(item: SegmentRange) -> bool:
            over = [other for other in everything if _overlap(item, everything[other])]
            return all(item.segment_id >= other for other in over if other in low) and all(
                item.segment_id <= other for other in over if other in high
            )

        return sorted(item for item in everything if between(everything[item]))

    def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        with self._change() as store:
            on_record = _epochs(store, scope, stream)
            epochs = [_epoch_segments(store, scope, stream, epoch) for epoch in on_record]
        known = {item.segment_id for segments in epochs for item in segments}
        if segment_id not in known and segment_epoch(segment_id) < on_record[0]:
            raise NotFound(f"segment {segment_id} of stream {scope}/{stream} was truncated, and what followed it")
        for before, after in itertools.pairwise(epochs):
            gone = [item for item in before if item not in after]
            mine = [item for item in gone if item.segment_id == segment_id]
            if mine:
                new = [item for item in after if item not in before and _overlap(item, mine[0])]
                return [Successor(item, tuple(old.segment_id for old in gone if _overlap(old, item))) for item in new]
        return []

    def segment_info(self, scope: str, stream: str, segment_id: int) -> SegmentInfo:
        with self._change() as store:
            return _present(store, segment_name(scope, stream, segment_id))

    def segment_infos(self, scope: str, stream: str, segment_ids: Iterable[int]) -> dict[int, SegmentInfo]:
        found = {}
        for item in segment_ids:
            with contextlib.suppress(SegmentNotFound):
                found[item] = self.segment_info(scope, stream, item)
        return found

    def segment_infos_of_streams(
        self, segment_ids: Mapping[tuple[str, str], Iterable[int]]
    ) -> dict[tuple[str, str], dict[int, SegmentInfo]]:
        return {stream: FakeGateway.segment_infos(self, *stream, ids) for stream, ids in segment_ids.items()}

    def locate_offset(self, scope: str, stream: str, segment_id: int, offset: int) -> int:
        """Every block is a known boundary."""
        name = segment_name(scope, stream, segment_id)
        with self._change() as store:
            length = _present(store, name).length
            query = "SELECT MIN(start) FROM blocks WHERE segment = ? AND start >= ?"
            found = store.execute(query, (name, offset)).fetchone()[0]
            return length if found is None else found

    def boundaries(self, scope: str, stream: str, segment_id: int) -> FakeBoundaries:
        """Every block is in the index."""
        name = segment_name(scope, stream, segment_id)
        with self._change() as store:
            info = _present(store, name)
            query = "SELECT start + LENGTH(data), events, time_ms FROM blocks WHERE segment = ? ORDER BY start"
            return FakeBoundaries(info, store.execute(query, (name,)).fetchall())

    def boundaries_of_many(self, scope: str, stream: str, segment_ids: Sequence[int]) -> dict[int, FakeBoundaries]:
        found = {}
        for item in segment_ids:
            with contextlib.suppress(SegmentNotFound):
                found[item] = FakeGateway.boundaries(self, scope, stream, item)
        return found

    def locate_offsets(self, scope: str, stream: str, offsets: Mapping[int, int]) -> dict[int, int]:
        found = {}
        for item, offset in offsets.items():
            with contextlib.suppress(SegmentNotFound):
                found[item] = FakeGateway.locate_offset(self, scope, stream, item, offset)
        return found

    def read_heads(self, scope: str, stream: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, memoryview]:
        found = {}
        for item, (start, end) in ranges.items():
            data = bytearray(end - start)
            source = FakeGateway.open_range(self, segment_name(scope, stream, item), start, end)
            with contextlib.suppress(SegmentNotFound, SegmentTruncated):
                found[item] = memoryview(data)[: source.read_into(memoryview(data))]
        return found

    # Transactions

    def create_transaction(self, scope: str, stream: str, lease_ms: int) -> NewTransaction:
        transaction_id = uuid.uuid4()
        with self._change() as store:
            epoch = _epoch(store, scope, stream)
            row = (transaction_id.hex, f"{scope}/{stream}", epoch, "open")
            store.execute("INSERT INTO transactions VALUES (?, ?, ?, ?, NULL, NULL)", row)
            segments = [
                SegmentRange(scope, stream, segment_id_of(epoch, item), item.key_low, item.key_high)
                for item in _epoch_segments(store, scope, stream, epoch)
            ]
            return NewTransaction(transaction_id, tuple(segments))

    def abort_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None:
        with self._change() as store:
            if not _abort(store, transaction_id):
                raise errors.TransactionFailed(f"transaction {transaction_id} is committed")

    def transaction_states(self) -> dict[uuid.UUID, str]:
        """The states of all transactions ever: ``open``, ``committed`` or ``aborted``."""
        with self._change() as store:
            rows = store.execute("SELECT id, state FROM transactions").fetchall()
            return {uuid.UUID(hex=identifier): state for identifier, state in rows}

    def register_transactions(self, registration: BatchRegistration) -> Registration:
        identity = registration.identity
        sink, run_id, batch_id = identity.sink, identity.run_id, identity.batch_id
        with self._change() as store:
            _admit(store, sink)
            last, runs = _sink(store, sink)
            if runs.is_displaced(run_id):
                return Registration(RegisterStatus.FENCED, f"run {run_id} was displaced", last, 0)
            _write_sink(store, sink, last, runs.seeing(run_id))
            if batch_id <= last:
                return Registration(RegisterStatus.BATCH_DECIDED, "", last, 0)
            for member in registration.members:
                if _state(store, member.transaction_id) != "open":
                    detail = f"transaction {member.transaction_id} is not open"
                    return Registration(RegisterStatus.TRANSACTION_NOT_OPEN, detail, last, 0)
                row = (_key(sink), batch_id, member.transaction_id.hex)
                store.execute("UPDATE transactions SET sink = ?, batch = ? WHERE id = ?", row)
            return Registration(RegisterStatus.REGISTERED, "", last, renewal_ms)

    def commit_transaction_set(self, commit: BatchCommit) -> SetDecision:
        sink, run_id, batch_id = commit.identity.sink, commit.identity.run_id, commit.identity.batch_id
        asked = commit.as_set(SetState.FINISHED)
        with self._change() as store:
            _admit(store, sink)
            last, runs = _sink(store, sink)
            recorded = _set(store, sink, batch_id)
            if runs.is_displaced(run_id):
                return SetDecision(CommitStatus.FENCED, f"run {run_id} was displaced", recorded)
            if batch_id < last:
                return SetDecision(CommitStatus.CHECKPOINT_BEHIND_SINK, f"the sink is at batch {last}", recorded)
            if batch_id == last:
                if (recorded.events, recorded.bytes) != (commit.events, commit.size_bytes):
                    return SetDecision(CommitStatus.REPLAY_DIFFERS, "", recorded)
                _write_sink(store, sink, last, runs.seeing(run_id))
                return SetDecision(CommitStatus.ALREADY_COMMITTED, "", recorded)
            _write_sink(store, sink, last, runs.introducing(run_id))
            for member in asked.members:
                if _state(store, member.transaction_id) != "open":
                    detail = f"transaction {member.transaction_id} is not open"
                    return SetDecision(CommitStatus.REFUSED, detail, recorded)
            for member in asked.members:
                _merge(store, member, self.now_ms())
            store.execute("UPDATE sinks SET last_batch = ? WHERE sink = ?", (batch_id, _key(sink)))
            store.execute("INSERT INTO sets VALUES (?, ?, ?)", (_key(sink), batch_id, _record(asked)))
            query = "SELECT id FROM transactions WHERE sink = ? AND batch <= ? AND state = 'open'"
            for (identifier,) in store.execute(query, (_key(sink), batch_id)).fetchall():
                _abort(store, uuid.UUID(hex=identifier))
            return SetDecision(CommitStatus.COMMITTED, "", asked)

    def transaction_set(self, sink: Sink, batch_id: int, wait_ms: int = 0) -> tuple[TransactionSet, int]:
        with self._change() as store:
            row = store.execute("SELECT last_batch FROM sinks WHERE sink = ?", (_key(sink),)).fetchone()
            return _set(store, sink, batch_id), row[0] if row else -1

    # Times of writers

    def note_time(self, scope: str, stream: str, writer_id: str, position: SegmentOffsets, time_ms: int) -> None:
        before = self.noted(scope, stream).get(writer_id)
        if before is not None and time_ms < before[0]:
            raise InvalidArgument(f"time {time_ms} of {writer_id} lies before {before[0]}")
        if before is not None and any(position.get(item, offset) < offset for item, offset in before[1].items()):
            raise InvalidArgument(f"position {dict(position)} of {writer_id} lies before {before[1]}")
        row = (scoped_name(scope, stream), writer_id, time_ms, json.dumps(dict(position)))
        with self._change() as store:
            store.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", row)

    def noted(self, scope: str, stream: str) -> dict[str, tuple[int, dict[int, int]]]:
        """The time and position that each writer noted last."""
        with self._change() as store:
            rows = store.execute(
                "SELECT writer, time_ms, position FROM marks WHERE stream = ?", (scoped_name(scope, stream),)
            )
            return {
                writer: (time_ms, {int(item): offset for item, offset in json.loads(position).items()})
                for writer, time_ms, position in rows
            }

    # Subscribers

    def subscribe(self, scope: str, name: str, streams: Collection[tuple[str, str]]) -> GroupRegistration:
        names = {scoped_name(*stream) for stream in streams}
        with self._change() as store:
            for stream in names:
                if not store.execute("SELECT 1 FROM streams WHERE scope || '/' || name = ?", (stream,)).fetchone():
                    raise errors.ControllerRefused(f"stream {stream} does not exist")
            subscriber = scoped_name(scope, name)
            found = store.execute("SELECT stream, id FROM subscribers WHERE name = ?", (subscriber,)).fetchall()
            identifier = found[0][1] if found else str(uuid.uuid4())
            if {stream for stream, _ in found} != names:
                store.execute("DELETE FROM subscribers WHERE name = ?", (subscriber,))
                rows = [(subscriber, stream, identifier, "{}") for stream in names]
                store.executemany("INSERT INTO subscribers VALUES (?, ?, ?, ?)", rows)
        return GroupRegistration(scope, name, identifier, 0, ReaderGroupRetention.MANUAL)

    def release(self, subscription: GroupRegistration, scope: str, stream: str, cut: SegmentOffsets) -> None:
        place = (subscription.subscriber, scoped_name(scope, stream))
        with self._change() as store:
            found = store.execute("SELECT cut FROM subscribers WHERE name = ? AND stream = ?", place).fetchone()
            if found is None:
                raise NotFound(f"{place[0]} does not subscribe to {place[1]}")
            before = {int(item): offset for item, offset in json.loads(found[0]).items()}
            if any(offset > cut.get(item, offset) for item, offset in before.items()):
                raise InvalidArgument(f"{dict(cut)} lies before {before}")
            store.execute("UPDATE subscribers SET cut = ? WHERE name = ? AND stream = ?", (json.dumps(cut), *place))

    def released(self, scope: str, stream: str) -> dict[str, dict[int, int]]:
        """What each subscriber of a stream released last, by its name; empty before."""
        with self._change() as store:
            rows = store.execute("SELECT name, cut FROM subscribers WHERE stream = ?", (scoped_name(scope, stream),))
            return {name: {int(item): offset for item, offset in json.loads(cut).items()} for name, cut in rows}

    def unsubscribe(self, scope: str, name: str) -> None:
        with self._change() as store:
            store.execute("DELETE FROM subscribers WHERE name = ?", (scoped_name(scope, name),))

    # Bytes

    def open_writer(self, segment: str) -> FakeWriter:
        return FakeWriter(self, segment)

    def open_range(self, segment: str, start: int, end: int) -> FakeRange:
        return FakeRange(self, segment, start, end)

    def open_watch(self) -> FakeWatch:
        return FakeWatch()

    def known_store(self, segment: str) -> str:
        return ""

    def expect_store(self, segment: str, store: str) -> None:
        """There is one store, and it is asked anyway."""

    def append(self, segment: str, data: bytes, events: int) -> None:
        with self._change() as store:
            if is_transaction_segment(segment):
                transaction = parse_segment_name(segment).transaction_id
                if transaction is None or _state(store, transaction) != "open":
                    raise SegmentNotFound(segment)
                start = _length(store, segment)
            else:
                info = _present(store, segment)
                if info.is_sealed:
                    raise SegmentSealed(segment)
                start = info.length
            store.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?)", (segment, start, data, events, self.now_ms()))

    def read(self, segment: str, start: int, bytes_max: int) -> bytes:
        """From the block that has ``start``; at most to that block's end."""
        with self._change() as store:
            info = _present(store, segment)
            if start < info.start_offset:
                raise SegmentTruncated(segment, info.start_offset, start)
            query = "SELECT start, data FROM blocks WHERE segment = ? AND start <= ? ORDER BY start DESC LIMIT 1"
            block_start, data = store.execute(query, (segment, start)).fetchone()
            piece: bytes = data[start - block_start : start - block_start + bytes_max]
            return piece


class FakeWriter:
    """Like ``BlockWriter``: what is written is there after ``flush``."""

    def __init__(self, gateway: FakeGateway, segment: str) -> None:
        self._gateway = gateway
        self._segment = segment
        self._pieces: list[Piece] = []

    @property
    def gathered_bytes(self) -> int:
        return sum(len(piece.data) for piece in self._pieces)

    def write(self, data: memoryview, event_count: int, tag: Any = None) -> None:
        self._pieces.append(Piece(data, event_count, tag))

    def start_flush(self) -> None:
        """Does nothing: ``flush`` does all."""

    def flush(self) -> None:
        while self._pieces:
            self._gateway.append(self._segment, bytes(self._pieces[0].data), self._pieces[0].event_count)
            self._pieces.pop(0)

    def unacknowledged(self) -> list[Piece]:
        return list(self._pieces)

    def close(self) -> None:
        self._pieces.clear()


class FakeWatch:
    """Watches nothing: a directory tells nobody what comes to it."""

    def begin(self, offsets: Mapping[str, int]) -> bool:
        return False

    def wait(self, wait_s: float) -> bool:
        raise AssertionError(f"waits for {wait_s} s without a watch")


class FakeRange:
    """Like ``RangeReader``."""

    def __init__(self, gateway: FakeGateway, segment: str, start: int, end: int) -> None:
        self.position = start
        self._gateway = gateway
        self._segment = segment
        self._end = end

    def read_into(self, target: memoryview) -> int:
        filled = 0
        while filled < len(target) and self.position < self._end:
            expected, room = min(request_bytes_max, self._end - self.position), len(target) - filled
            if filled and expected > room:
                break
            wanted = min(expected, room)
            data = self._gateway.read(self._segment, self.position, wanted)
            check(len(data) > 0, "read past the end", segment=self._segment, position=self.position)
            target[filled : filled + len(data)] = data
            filled += len(data)
            self.position += len(data)
        return filled

    def close(self) -> None:
        """Does nothing: no resource is held."""


class FakeBoundaries:
    """Like ``EventIndex``."""

    def __init__(self, info: SegmentInfo, blocks: list[tuple[int, int, int]]) -> None:
        """``blocks``: end, events and time of each."""
        self._info = info
        counts = itertools.accumulate(events for _, events, _ in blocks)
        self._records = [IndexRecord(end, count, at) for (end, _, at), count in zip(blocks, counts, strict=True)]

    def offset_at_or_after(self, offset: int) -> int:
        return min((item.length for item in self._records if item.length >= offset), default=self._info.length)

    def offset_at_time(self, time_ms: int) -> int:
        found = min((item.length for item in self._records if item.time_ms >= time_ms), default=self._info.length)
        return max(found, self._info.start_offset)

    def offset_before_time(self, time_ms: int) -> int:
        found = max((item.length for item in self._records if item.time_ms < time_ms), default=0)
        return max(found, self._info.start_offset)

    def times_behind(self, offsets: Int64s) -> Int64s:
        behind = (next((item for item in self._records if item.length > offset), None) for offset in offsets)
        return np.array([time_unknown if item is None else item.time_ms for item in behind], np.int64)

    def events_between(self, start: int, end: int) -> EventCount:
        first, last = self._before(start), self._before(end)
        return EventCount(last.events - first.events, first.is_exact and last.is_exact)

    def advance(self, start: int, events_max: int) -> ReadTarget:
        before = self._before(start)
        behind = [item for item in self._records if item.length > start]
        fitting = [item for item in behind if item.event_count - before.events <= events_max]
        found = (fitting[-1:] or behind[:1])[0] if behind else IndexRecord(start, before.events, 0)
        return ReadTarget(found.length, found.event_count - before.events, before.is_exact)

    def _before(self, offset: int) -> EventCount:
        below = [item for item in self._records if item.length <= offset] or [IndexRecord(0, 0, 0)]
        return EventCount(below[-1].event_count, below[-1].length == offset)


def segment_id_of(epoch: int, item: SegmentRange) -> int:
    """The id generalised to a transaction's epoch."""
    return segment_id(segment_number(item.segment_id), epoch)


def _lies_before(item: int, offset: int, segments: Mapping[int, SegmentRange], start: SegmentOffsets) -> bool:
    """Whether a part of a cut lies before a start."""
    later = [other for other in start if other > item and _overlap(segments[item], segments[other])]
    return bool(later) or offset < start.get(item, offset)


def _overlap(first: SegmentRange, second: SegmentRange) -> bool:
    return first.key_low < second.key_high and second.key_low < first.key_high


def _epoch(store: sqlite3.Connection, scope: str, stream: str) -> int:
    row = store.execute("SELECT epoch FROM streams WHERE scope = ? AND name = ?", (scope, stream)).fetchone()
    if row is None:
        raise StreamNotFound(f"stream {scope}/{stream} does not exist")
    return int(row[0])


def _epochs(store: sqlite3.Connection, scope: str, stream: str) -> list[int]:
    """The epochs on record."""
    query = "SELECT DISTINCT epoch FROM epochs WHERE stream = ? AND epoch <= ? ORDER BY epoch"
    return [epoch for (epoch,) in store.execute(query, (f"{scope}/{stream}", _epoch(store, scope, stream))).fetchall()]


def _begin_epoch(
    store: sqlite3.Connection,
    scope: str,
    stream: str,
    epoch: int,
    kept: list[SegmentRange],
    new: list[tuple[int, tuple[float, float]]],
) -> list[SegmentRange]:
    made = [SegmentRange(scope, stream, segment_id(number, epoch), low, high) for number, (low, high) in new]
    name = f"{scope}/{stream}"
    for item in made:
        row = (item.name, name, item.segment_id, item.key_low, item.key_high)
        store.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?, 0, 0)", row)
    for item in [*kept, *made]:
        row = (name, epoch, item.segment_id, item.key_low, item.key_high)  # type: ignore[assignment]
        store.execute("INSERT INTO epochs VALUES (?, ?, ?, ?, ?)", row)
    return made


def _epoch_segments(store: sqlite3.Connection, scope: str, stream: str, epoch: int) -> list[SegmentRange]:
    query = "SELECT segment_id, low, high FROM epochs WHERE stream = ? AND epoch = ? ORDER BY low"
    rows = store.execute(query, (f"{scope}/{stream}", epoch)).fetchall()
    return [SegmentRange(scope, stream, *row) for row in rows]


def _length(store: sqlite3.Connection, segment: str) -> int:
    query = "SELECT start + LENGTH(data) FROM blocks WHERE segment = ? ORDER BY start DESC LIMIT 1"
    row = store.execute(query, (segment,)).fetchone()
    return int(row[0]) if row else 0


def _info(store: sqlite3.Connection, segment: str) -> SegmentInfo | None:
    row = store.execute("SELECT start, sealed FROM segments WHERE name = ?", (segment,)).fetchone()
    return SegmentInfo(segment, row[0], _length(store, segment), bool(row[1])) if row else None


def _present(store: sqlite3.Connection, segment: str) -> SegmentInfo:
    info = _info(store, segment)
    if info is None:
        raise SegmentNotFound(segment)
    return info


def _state(store: sqlite3.Connection, transaction_id: uuid.UUID) -> str | None:
    row = store.execute("SELECT state FROM transactions WHERE id = ?", (transaction_id.hex,)).fetchone()
    return str(row[0]) if row else None


def _abort(store: sqlite3.Connection, transaction_id: uuid.UUID) -> bool:
    if _state(store, transaction_id) == "committed":
        return False
    store.execute("UPDATE transactions SET state = 'aborted' WHERE id = ?", (transaction_id.hex,))
    store.execute("DELETE FROM blocks WHERE segment LIKE ?", (f"%#transaction.{transaction_id.hex}",))
    return True


def _merge(store: sqlite3.Connection, member: SetMember, now_ms: int) -> None:
    """Move the transaction's blocks behind those of the open segments, by number."""
    query = "SELECT DISTINCT segment FROM blocks WHERE segment LIKE ?"
    sources = store.execute(query, (f"%#transaction.{member.transaction_id.hex}",)).fetchall()
    current = _epoch_segments(store, member.scope, member.stream, _epoch(store, member.scope, member.stream))
    by_number = {segment_number(item.segment_id): item.name for item in current}
    for (source,) in sources:
        target = by_number[segment_number(parse_segment_name(source).segment_id)]
        start = _length(store, target)
        query = "UPDATE blocks SET segment = ?, start = start + ?, time_ms = ? WHERE segment = ?"
        store.execute(query, (target, start, now_ms, source))
    store.execute("UPDATE transactions SET state = 'committed' WHERE id = ?", (member.transaction_id.hex,))


def _key(sink: Sink) -> str:
    return json.dumps([sink.query_id, sink.destination])


def _sink(store: sqlite3.Connection, sink: Sink) -> tuple[int, SinkRuns]:
    """The last committed batch and the runs."""
    row = store.execute("SELECT last_batch, runs FROM sinks WHERE sink = ?", (_key(sink),)).fetchone()
    return (row[0], SinkRuns(*map(tuple, json.loads(row[1])))) if row else (-1, SinkRuns())


def _admit(store: sqlite3.Connection, sink: Sink) -> None:
    """``AccessDenied`` unless the sink's secret is shown; the first that is shown is taken."""
    row = store.execute("SELECT hash FROM secrets WHERE sink = ?", (_key(sink),)).fetchone()
    shown = hash_of(sink.secret)
    if row is not None and is_stranger(row[0], shown):
        raise AccessDenied(refusal(sink.query_id, sink.destination, shown))
    if row is None and shown:
        store.execute("INSERT INTO secrets VALUES (?, ?)", (_key(sink), shown))


def _write_sink(store: sqlite3.Connection, sink: Sink, last: int, runs: SinkRuns) -> None:
    row = (_key(sink), last, json.dumps([runs.introduced, runs.seen]))
    store.execute("INSERT OR REPLACE INTO sinks VALUES (?, ?, ?)", row)


def _record(made: TransactionSet) -> str:
    members = [
        [item.scope, item.stream, item.transaction_id.hex, item.partition, item.events, item.bytes]
        for item in made.members
    ]
    return json.dumps([made.state.value, made.batch_id, made.run_id, members, made.events, made.bytes])


def _set(store: sqlite3.Connection, sink: Sink, batch_id: int) -> TransactionSet:
    row = store.execute("SELECT record FROM sets WHERE sink = ? AND batch = ?", (_key(sink), batch_id)).fetchone()
    if row is None:
        return TransactionSet(SetState.NONE, batch_id, "", (), 0, 0)
    state, batch, run_id, members, events, size_bytes = json.loads(row[0])
    parsed = tuple(SetMember(item[0], item[1], uuid.UUID(hex=item[2]), *item[3:]) for item in members)
    return TransactionSet(SetState(state), batch, run_id, parsed, events, size_bytes)
