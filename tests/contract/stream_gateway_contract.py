"""Says how every ``StreamGateway`` behaves: all that the Spark connector relies on."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pravega_common.errors import (
    AccessDenied,
    InvalidArgument,
    NotFound,
    PravegaError,
    RejectedError,
    ScopeNotFound,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    UnknownOutcome,
    UnsupportedOperation,
)
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transaction_sets import (
    CommitStatus,
    RegisterStatus,
    Registration,
    SetDecision,
    SetMember,
    SetState,
    Sink,
)
from pravega_common.names import segment_name, transaction_segment_name
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.ledger.batch import BatchCommit, BatchIdentity, BatchRegistration, UnresolvedPolicy
from pravega_streams.segment.event_index import EventCount, ReadTarget, time_unknown
from tests.contract.sink_runs_contract import SinkRunsContract
from tests.support.eventually import eventually, eventually_blocking

LEASE_MS = 30_000


def framed(events: Sequence[bytes]) -> memoryview:
    return memoryview(b"".join(struct.pack(">ii", 0, len(event)) + event for event in events))


def register(
    gateway: StreamGateway, sink: Sink, run_id: str, batch_id: int, members: Sequence[SetMember]
) -> Registration:
    return gateway.register_transactions(BatchRegistration(BatchIdentity(sink, run_id, batch_id), tuple(members)))


def commit_set(
    gateway: StreamGateway,
    sink: Sink,
    run_id: str,
    batch_id: int,
    members: Sequence[SetMember],
    events: int,
    size_bytes: int,
    on_unresolved: UnresolvedPolicy = "fail",
) -> SetDecision:
    identity = BatchIdentity(sink, run_id, batch_id)
    return gateway.commit_transaction_set(BatchCommit(identity, tuple(members), events, size_bytes, on_unresolved))


class SinkCallsOfGateway:
    """The calls of tasks and drivers through a gateway."""

    def __init__(self, gateway: StreamGateway) -> None:
        self.register = gateway.register_transactions
        self.commit = gateway.commit_transaction_set


class StreamGatewayContract(SinkRunsContract):
    """Subclasses give the fixture ``gateway``. Every test has a stream of its own."""

    keeps_secrets = True
    """Whether sinks have secrets; where a controller is a plain Pravega, permissions on the table of sinks decide."""

    tells_time = True
    """Whether the store tells the time of the cluster, which a Pravega of others does not."""

    @pytest.fixture
    def scope(self, gateway: StreamGateway) -> str:
        name = f"scope-{uuid.uuid4().hex[:8]}"
        assert gateway.create_scope(name)
        return name

    def make(self, gateway: StreamGateway, scope: str, segments: int = 1, stream: str = "t") -> None:
        assert gateway.create_stream(scope, stream, StreamConfiguration(ScalingPolicy.fixed(segments)))

    def append(self, gateway: StreamGateway, segment: str, events: Sequence[bytes]) -> int:
        data = framed(events)
        writer = gateway.open_writer(segment)
        writer.write(data, len(events))
        writer.flush()
        assert writer.unacknowledged() == []
        writer.close()
        return len(data)

    def content(self, gateway: StreamGateway, scope: str, segment_id: int, stream: str = "t") -> bytes:
        info = gateway.segment_info(scope, stream, segment_id)
        target = bytearray(info.length - info.start_offset + 10)
        source = gateway.open_range(segment_name(scope, stream, segment_id), info.start_offset, info.length)
        count = source.read_into(memoryview(target))
        assert source.read_into(memoryview(target)[count:]) == 0
        source.close()
        return bytes(target[:count])

    # Times

    async def test_events_have_the_time_of_the_cluster(self, gateway: StreamGateway, scope: str) -> None:
        before_ms = gateway.cluster_time_ms()
        if not self.tells_time:
            assert before_ms is None
            return
        self.make(gateway, scope)
        self.append(gateway, segment_name(scope, "t", 0), [b"x" * 100_000])

        def taken_ms() -> int:
            return int(gateway.boundaries(scope, "t", 0).times_behind(np.zeros(1, np.int64))[0])

        await eventually(lambda: taken_ms() != time_unknown)
        after_ms = gateway.cluster_time_ms()
        assert before_ms is not None and after_ms is not None
        assert before_ms <= taken_ms() <= after_ms

    # Times of writers

    def test_times_never_go_back(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        length = self.append(gateway, segment_name(scope, "t", 0), [b"one"])
        gateway.note_time(scope, "t", "writer", {0: 0}, 1_000)
        gateway.note_time(scope, "t", "writer", {0: length}, 1_000)
        with pytest.raises(InvalidArgument):
            gateway.note_time(scope, "t", "writer", {0: length}, 999)
        with pytest.raises(InvalidArgument):
            gateway.note_time(scope, "t", "writer", {0: 0}, 2_000)
        gateway.note_time(scope, "t", "another", {0: 0}, 1)

    # Subscribers

    def test_a_subscriber_releases_and_never_goes_back(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        self.make(gateway, scope, stream="u")
        length = self.append(gateway, segment_name(scope, "t", 0), [b"one", b"two"])
        known = gateway.subscribe(scope, "query", [(scope, "t")])
        assert gateway.subscribe(scope, "query", [(scope, "t")]) == known
        gateway.release(known, scope, "t", {0: 11})
        gateway.release(known, scope, "t", {0: 11})
        with pytest.raises(InvalidArgument):
            gateway.release(known, scope, "t", {0: 0})
        gateway.release(known, scope, "t", {0: length})
        with pytest.raises(NotFound):
            gateway.release(known, scope, "u", {0: 0})

    def test_a_subscriber_changes_its_streams(self, gateway: StreamGateway, scope: str) -> None:
        for stream in ("t", "u"):
            self.make(gateway, scope, stream=stream)
        gateway.subscribe(scope, "query", [(scope, "t")])
        changed = gateway.subscribe(scope, "query", [(scope, "u")])
        gateway.release(changed, scope, "u", {0: 0})
        with pytest.raises(NotFound):
            gateway.release(changed, scope, "t", {0: 0})

    # Scopes and streams

    def test_creating(self, gateway: StreamGateway, scope: str) -> None:
        assert not gateway.create_scope(scope)
        assert gateway.scope_exists(scope)
        assert not gateway.scope_exists(scope + "-not")
        assert not gateway.stream_exists(scope, "t")
        self.make(gateway, scope, 2)
        assert gateway.stream_exists(scope, "t")
        assert not gateway.create_stream(scope, "t", StreamConfiguration(ScalingPolicy.fixed(5)))
        assert len(gateway.current_segments(scope, "t")) == 2
        self.make(gateway, scope, stream="another")
        assert gateway.list_streams(scope) == ["another", "t"]

    def test_missing(self, gateway: StreamGateway, scope: str) -> None:
        with pytest.raises(ScopeNotFound):
            gateway.create_stream(scope + "-not", "t", StreamConfiguration())
        with pytest.raises(RejectedError):
            gateway.head_cut(scope, "t")
        with pytest.raises(RejectedError):
            gateway.current_segments(scope, "t")
        with pytest.raises(RejectedError):
            gateway.create_transaction(scope, "t", LEASE_MS)

    # Bytes

    def test_bytes_come_back(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        assert gateway.head_cut(scope, "t") == gateway.tail_cut(scope, "t") == {0: 0}
        events = [b"a", b"", b"x" * 2_500_000, b"last"]
        length = self.append(gateway, segment_name(scope, "t", 0), events)
        assert gateway.tail_cut(scope, "t") == {0: length}
        assert gateway.segment_info(scope, "t", 0).length == length
        assert self.content(gateway, scope, 0) == framed(events)

    def test_any_range(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        name = segment_name(scope, "t", 0)
        data = framed([bytes([number % 256]) * 1000 for number in range(500)])
        for number in range(5):
            self.append(
                gateway, name, [bytes([index % 256]) * 1000 for index in range(number * 100, number * 100 + 100)]
            )
        target = bytearray(70_000)
        source = gateway.open_range(name, 12_345, 345_678)
        got = b""
        while count := source.read_into(memoryview(target)):
            got += target[:count]
        assert got == data[12_345:345_678]

    @pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
    def test_expected_store(self, gateway: StreamGateway, scope: str, is_right: bool) -> None:
        """A hint of where a segment is served: it may be wrong, and nothing but an attempt is lost."""
        self.make(gateway, scope)
        name = segment_name(scope, "t", 0)
        self.append(gateway, name, [b"event"])
        assert gateway.segment_infos(scope, "t", [0])
        known = gateway.known_store(name)
        gateway.expect_store(name, known if is_right and known else "127.0.0.1:1")
        assert self.content(gateway, scope, 0) == framed([b"event"])
        assert gateway.known_store(name) == known

    def test_a_watch_tells_of_bytes(self, gateway: StreamGateway, scope: str) -> None:
        """Of those that came before it, too; where segments can be watched."""
        self.make(gateway, scope, 2)
        segments = [segment_name(scope, "t", item) for item in range(2)]
        self.append(gateway, segments[0], [b"a"])
        watch = gateway.open_watch()
        for tails in ({segments[0]: 9, segments[1]: 0}, {segments[0]: 9, segments[1]: 9}):
            if not watch.begin(tails):
                return
            assert not watch.wait(0.2)
            self.append(gateway, segments[1], [b"b"])
            assert watch.wait(30.0)
        assert watch.begin({segments[0]: 9, segments[1]: 9}) and watch.wait(30.0)
        assert not watch.begin({}), "there is nothing to watch"

    def test_missing_segment(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        with pytest.raises(SegmentNotFound):
            gateway.segment_info(scope, "t", 77)
        assert gateway.segment_infos(scope, "t", [77]) == {}
        # A real Pravega answers the present time for a segment that was never written to.
        one, several = gateway.segment_info(scope, "t", 0), gateway.segment_infos(scope, "t", [0, 77])
        assert {item: replace(info, last_modified_ms=0) for item, info in several.items()} == {
            0: replace(one, last_modified_ms=0)
        }
        assert gateway.segment_infos(scope, "t", []) == {}
        together = gateway.segment_infos_of_streams({(scope, "t"): [0, 77], (scope, "none"): [0], (scope, "u"): []})
        assert set(together[scope, "t"]) == {0}
        assert together[scope, "none"] == together[scope, "u"] == {}
        assert gateway.segment_infos_of_streams({}) == {}
        with pytest.raises((SegmentNotFound, UnsupportedOperation)):
            gateway.locate_offset(scope, "t", 77, 0)
        writer = gateway.open_writer(segment_name(scope, "t", 77))
        with pytest.raises(SegmentNotFound):
            writer.write(framed([b"x"]), 1)
            writer.flush()
        assert [piece.event_count for piece in writer.unacknowledged()] == [1]
        with pytest.raises(SegmentNotFound):
            gateway.open_range(segment_name(scope, "t", 77), 0, 10).read_into(memoryview(bytearray(10)))

    # Scaling, truncation, seal

    def test_scale(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        self.append(gateway, segment_name(scope, "t", 0), [b"old"])
        low, high = gateway.scale_stream(scope, "t", [0], [(0.0, 0.5), (0.5, 1.0)])
        assert gateway.segment_info(scope, "t", 0).is_sealed
        following = gateway.successors(scope, "t", 0)
        assert {item.segment.segment_id for item in following} == {low.segment_id, high.segment_id}
        assert all(item.predecessors == (0,) for item in following)
        assert gateway.successors(scope, "t", low.segment_id) == []
        assert {item.segment_id for item in gateway.current_segments(scope, "t")} == {low.segment_id, high.segment_id}
        assert [item.segment_id for item in gateway.epoch_segments(scope, "t", 0)] == [0]
        between = gateway.segments_between(scope, "t", {0: 0}, gateway.tail_cut(scope, "t"))
        assert sorted(between) == sorted([0, low.segment_id, high.segment_id])
        for start, end in ((gateway.tail_cut(scope, "t"), {0: 0}), ({0: 9}, {0: 0})):
            with pytest.raises((InvalidArgument, UnknownOutcome)):  # The latter of a plain Pravega.
                gateway.segments_between(scope, "t", start, end)
        writer = gateway.open_writer(segment_name(scope, "t", 0))
        with pytest.raises(SegmentSealed):
            writer.write(framed([b"x"]), 1)
            writer.flush()

    def test_an_epoch_that_never_was(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        with pytest.raises(NotFound):
            gateway.epoch_segments(scope, "t", 1)
        with pytest.raises(NotFound):
            gateway.epoch_segments(scope, "another", 0)

    def test_merge_has_two_predecessors(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        halves = [item.segment_id for item in gateway.scale_stream(scope, "t", [0], [(0.0, 0.5), (0.5, 1.0)])]
        gateway.scale_stream(scope, "t", halves, [(0.0, 1.0)])
        (following,) = gateway.successors(scope, "t", halves[0])
        assert sorted(following.predecessors) == sorted(halves)

    def test_truncate(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        first = self.append(gateway, segment_name(scope, "t", 0), [b"gone"])
        self.append(gateway, segment_name(scope, "t", 0), [b"stays"])
        gateway.truncate_stream(scope, "t", {0: first})
        assert gateway.head_cut(scope, "t") == {0: first}
        assert self.content(gateway, scope, 0) == framed([b"stays"])
        with pytest.raises(SegmentTruncated) as caught:
            gateway.open_range(segment_name(scope, "t", 0), 0, first).read_into(memoryview(bytearray(10)))
        assert caught.value.start_offset == first

    def test_seal(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        length = self.append(gateway, segment_name(scope, "t", 0), [b"all"])
        gateway.seal_stream(scope, "t")
        assert gateway.current_segments(scope, "t") == []
        assert gateway.tail_cut(scope, "t") == {0: length}
        assert gateway.successors(scope, "t", 0) == []

    # Transactions

    @pytest.fixture
    def calls(self, gateway: StreamGateway) -> SinkCallsOfGateway:
        return SinkCallsOfGateway(gateway)

    @pytest.fixture
    def sink(self, gateway: StreamGateway, scope: str) -> Sink:
        self.make(gateway, scope)
        return Sink(uuid.uuid4().hex, f"{scope}/t")

    def begin(
        self, gateway: StreamGateway, scope: str, sink: Sink, events: Sequence[bytes], partition: int = 0
    ) -> SetMember:
        """A transaction of batch 0 of run "r", with events in its first segment."""
        made = gateway.create_transaction(scope, "t", LEASE_MS)
        member = SetMember(scope, "t", made.transaction_id, partition, len(events), len(framed(events)))
        answer = register(gateway, sink, "r", 0, [member])
        assert answer.status is RegisterStatus.REGISTERED
        assert answer.renewed_for_ms > 0
        self.append(gateway, transaction_segment_name(made.segments[0].name, made.transaction_id), events)
        return member

    def test_a_set_is_committed_whole_in_partition_order(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        sink = Sink(uuid.uuid4().hex, f"{scope}/t")
        members = [self.begin(gateway, scope, sink, [f"{part}".encode()] * 2, part) for part in (2, 0, 1)]
        assert self.content(gateway, scope, 0) == b""
        events, size = sum(member.events for member in members), sum(member.bytes for member in members)
        assert gateway.transaction_set(sink, 0)[1] == -1
        decision = commit_set(gateway, sink, "r", 0, members, events, size)
        assert decision.status is CommitStatus.COMMITTED
        self.wait_finished(gateway, sink)
        assert self.content(gateway, scope, 0) == framed([b"0", b"0", b"1", b"1", b"2", b"2"])

    def wait_finished(self, gateway: StreamGateway, sink: Sink) -> None:
        eventually_blocking(lambda: gateway.transaction_set(sink, 0)[0].state is SetState.FINISHED, "the set's end")
        assert gateway.transaction_set(sink, 0)[1] == 0

    def test_the_same_batch_again(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        sink = Sink(uuid.uuid4().hex, f"{scope}/t")
        member = self.begin(gateway, scope, sink, [b"x"])
        commit_set(gateway, sink, "r", 0, [member], 1, 9)
        assert register(gateway, sink, "r", 0, []).status is RegisterStatus.BATCH_DECIDED
        again = commit_set(gateway, sink, "r", 0, [], 1, 9)
        assert again.status is CommitStatus.ALREADY_COMMITTED
        assert [item.transaction_id for item in again.recorded.members] == [member.transaction_id]
        assert commit_set(gateway, sink, "r", 0, [], 2, 9).status is CommitStatus.REPLAY_DIFFERS
        self.wait_finished(gateway, sink)
        assert self.content(gateway, scope, 0) == framed([b"x"])

    def test_older_batch_and_displaced_run(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        sink = Sink(uuid.uuid4().hex, f"{scope}/t")
        for batch_id in (0, 1, 2):
            assert commit_set(gateway, sink, "r", batch_id, [], 0, 0).status is CommitStatus.COMMITTED
        assert commit_set(gateway, sink, "r", 1, [], 0, 0).status is CommitStatus.CHECKPOINT_BEHIND_SINK
        assert register(gateway, sink, "r2", 3, []).status is RegisterStatus.REGISTERED
        assert commit_set(gateway, sink, "r2", 3, [], 0, 0).status is CommitStatus.COMMITTED
        assert register(gateway, sink, "r", 4, []).status is RegisterStatus.FENCED
        assert commit_set(gateway, sink, "r", 4, [], 0, 0).status is CommitStatus.FENCED

    def test_a_stranger_to_a_sink(self, gateway: StreamGateway, scope: str) -> None:
        """The first secret that is shown is asked for; without it there is no joining, fencing or blocking."""
        if not self.keeps_secrets:
            pytest.skip("a plain Pravega knows no secrets of sinks")
        self.make(gateway, scope)
        own = Sink(uuid.uuid4().hex, f"{scope}/t", b"m" * 32)
        assert commit_set(gateway, own, "r", 0, [], 0, 0).status is CommitStatus.COMMITTED
        for secret in (b"", b"t" * 32):
            stranger = replace(own, secret=secret)
            for batch_id in (0, 1, 2**63 - 1):
                with pytest.raises(AccessDenied):
                    register(gateway, stranger, "s", batch_id, [])
                with pytest.raises(AccessDenied):
                    commit_set(gateway, stranger, "s", batch_id, [], 0, 0)
        assert commit_set(gateway, own, "r", 1, [], 0, 0).status is CommitStatus.COMMITTED
        assert gateway.transaction_set(own, 1)[1] == 1

    def test_one_member_gone_refuses_all(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        sink = Sink(uuid.uuid4().hex, f"{scope}/t")
        members = [self.begin(gateway, scope, sink, [b"x"], part) for part in range(2)]
        gateway.abort_transaction(scope, "t", members[1].transaction_id)
        assert commit_set(gateway, sink, "r", 0, members, 2, 18).status is CommitStatus.REFUSED
        assert self.content(gateway, scope, 0) == b""

    def test_what_is_not_in_the_set_is_aborted(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        sink = Sink(uuid.uuid4().hex, f"{scope}/t")
        orphan, member = (self.begin(gateway, scope, sink, [b"x"]) for _ in range(2))
        commit_set(gateway, sink, "r", 0, [member], 1, 9)
        self.wait_finished(gateway, sink)
        answer = register(gateway, sink, "r", 1, [replace(orphan)])
        assert answer.status is RegisterStatus.TRANSACTION_NOT_OPEN
        assert self.content(gateway, scope, 0) == framed([b"x"])

    def test_aborted_transactions_take_no_bytes(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope)
        made = gateway.create_transaction(scope, "t", LEASE_MS)
        gateway.abort_transaction(scope, "t", made.transaction_id)
        name = transaction_segment_name(made.segments[0].name, made.transaction_id)
        for _ in range(200):  # An abort is decided at once, its segments go a little later.
            writer = gateway.open_writer(name)
            try:
                writer.write(framed([b"x"]), 1)
                writer.flush()
            except PravegaError as error:
                assert isinstance(error, SegmentNotFound | SegmentSealed), error
                return
            time.sleep(0.1)  # A real Pravega takes some hundred milliseconds.
        raise AssertionError("the segment of an aborted transaction still takes bytes")

    # Boundaries

    async def test_boundaries_of_blocks(self, gateway: StreamGateway, scope: str) -> None:
        """Counts between them are exact, and an advance never passes more events than asked for while it can."""
        self.make(gateway, scope)
        name = segment_name(scope, "t", 0)
        ends = [0]
        for count in (3, 5, 2):
            ends.append(ends[-1] + self.append(gateway, name, [b"x" * 100_000] * count))
        try:
            gateway.boundaries(scope, "t", 0)
        except UnsupportedOperation:
            pytest.skip("this store keeps no index")
        await eventually(lambda: gateway.boundaries(scope, "t", 0).events_between(0, ends[3]) == EventCount(10, True))
        known = gateway.boundaries(scope, "t", 0)
        assert known.events_between(ends[1], ends[2]) == EventCount(5, True)
        assert known.events_between(ends[1], ends[1]) == EventCount(0, True)
        assert [known.offset_at_or_after(offset) for offset in (1, ends[2], ends[2] + 1)] == ends[1:]
        assert known.advance(0, 8) == ReadTarget(ends[2], 8, True)
        assert known.advance(0, 9) == ReadTarget(ends[2], 8, True)
        assert known.advance(ends[2], 1) == ReadTarget(ends[3], 2, True)
        assert known.offset_before_time(0) == 0
        assert known.offset_at_time(2**61) == ends[3]
        with pytest.raises(SegmentNotFound):
            gateway.boundaries(scope, "t", 99)

    async def test_times_of_blocks(self, gateway: StreamGateway, scope: str) -> None:
        """An event was taken by the time of the boundary behind it, and not before that of the one before it."""
        self.make(gateway, scope)
        name = segment_name(scope, "t", 0)
        event = [b"x" * 100_000]
        first = self.append(gateway, name, event * 2)

        def times(offsets: list[int]) -> list[int]:
            found: list[int] = gateway.boundaries(scope, "t", 0).times_behind(np.array(offsets, np.int64)).tolist()
            return found

        try:
            await eventually(lambda: times([0]) != [time_unknown])
        except UnsupportedOperation:
            pytest.skip("this store keeps no index")
        end = first + self.append(gateway, name, event)
        await eventually(lambda: times([first]) != [time_unknown])
        found = times([0, first // 2, first, end])
        assert 0 < found[0] == found[1] <= found[2] and found[3] == time_unknown
        known = gateway.boundaries(scope, "t", 0)
        assert known.offset_at_time(found[0]) <= first and known.offset_at_time(found[2] + 1) == end
        assert times([]) == []

    async def test_boundaries_of_many_segments(self, gateway: StreamGateway, scope: str) -> None:
        """They say what the calls for one segment say; a segment that is not there is left out."""
        self.make(gateway, scope, 3)
        ends = [
            self.append(gateway, segment_name(scope, "t", item), [b"x" * 100_000] * (item + 1)) for item in range(3)
        ]
        assert not gateway.boundaries_of_many(scope, "t", [99])
        try:
            gateway.boundaries(scope, "t", 0)
        except UnsupportedOperation:
            assert not gateway.boundaries_of_many(scope, "t", [0, 1, 2])
            return

        def counts() -> list[EventCount]:
            found = gateway.boundaries_of_many(scope, "t", [0, 1, 2, 99])
            assert sorted(found) == [0, 1, 2]
            return [found[item].events_between(0, end) for item, end in enumerate(ends)]

        await eventually(lambda: counts() == [EventCount(item + 1, True) for item in range(3)])
        located = gateway.locate_offsets(scope, "t", {0: 1, 2: 5, 99: 1})
        assert located == {item: gateway.locate_offset(scope, "t", item, 1) for item in (0, 2)}

    def test_the_beginnings_of_ranges_of_many_segments(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope, 3)
        for item in range(3):
            self.append(gateway, segment_name(scope, "t", item), [b"%d" % item * 50] * 20)
        ranges = {item: (58 * item, 58 * 20) for item in range(3)}
        found = gateway.read_heads(scope, "t", {**ranges, 99: (0, 10)})
        assert sorted(found) == [0, 1, 2]
        for item, (start, end) in ranges.items():
            whole = bytes(framed([b"%d" % item * 50] * 20))[start:end]
            assert 0 < len(found[item]) <= len(whole)
            assert whole.startswith(bytes(found[item]))

    def test_a_deleted_stream_created_anew_has_other_segments(self, gateway: StreamGateway, scope: str) -> None:
        self.make(gateway, scope, 2)
        before = set(gateway.tail_cut(scope, "t"))
        gateway.seal_stream(scope, "t")
        gateway.delete_stream(scope, "t")
        assert not gateway.stream_exists(scope, "t")
        with pytest.raises(SegmentNotFound):
            gateway.segment_info(scope, "t", 0)
        self.make(gateway, scope, 2)
        assert not before & set(gateway.tail_cut(scope, "t"))
