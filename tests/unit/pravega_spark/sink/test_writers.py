"""Tasks write and the driver decides, over the fake."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pravega_common.errors import Fenced, InvalidArgument, StreamSealed, Unavailable
from pravega_common.model.transaction_sets import (
    RegisterStatus,
    Registration,
    SetDecision,
    SetState,
    Sink,
    TransactionSet,
)
from pravega_spark.ledger.batch import BatchCommit, BatchIdentity, BatchRegistration
from pravega_spark.options.definitions import Use
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.columns import SinkColumns
from pravega_spark.sink import lease_keeper
from pravega_spark.sink.batch_commit import abort_batch, commit_batch, readable_wait_ms
from pravega_spark.sink.batch_writer import batch_identity
from pravega_spark.sink.commit_protocol import (
    BatchRefused,
    CheckpointBehindSink,
    ReplayDiffers,
    combine,
    streaming_identity,
)
from pravega_spark.sink.destinations import Destinations
from pravega_spark.sink.direct_writer import DirectWriter
from pravega_spark.sink.lease_keeper import LeaseKeeper
from pravega_spark.sink.transaction_writer import TransactionWriter
from pravega_streams.errors import TransactionFailed
from tests.support.eventually import eventually_blocking
from tests.unit.pravega_spark.streams import FakeStreams, batch

COLUMNS = SinkColumns(0, 1)
IDENTITY = BatchIdentity(Sink("query", "s/t"), "run-1", 0)


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    made = FakeStreams(tmp_path)
    made.create("t", 3)
    return made


def options(**given: str) -> WriteOptions:
    return WriteOptions.parse({"scope": "s", "stream": "t", **given}, Use.STREAM_WRITE)


def writer(streams: FakeStreams, identity: BatchIdentity = IDENTITY, partition: int = 0) -> TransactionWriter:
    return TransactionWriter(
        streams.gateway, identity, Destinations("s", ("s", "t")), COLUMNS, partition=partition, lease_ms=30_000
    )


def rows(first: int, last: int) -> pa.RecordBatch:
    return batch(
        [f"event {index}".encode() for index in range(first, last)], [f"{index % 5}" for index in range(first, last)]
    )


def committed(streams: FakeStreams) -> list[bytes]:
    return sorted(event for events in streams.events("t").values() for event in events)


def expected(first: int, last: int) -> list[bytes]:
    return sorted(f"event {index}".encode() for index in range(first, last))


def states(streams: FakeStreams) -> list[str]:
    return sorted(streams.gateway.transaction_states().values())


def registrations(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of transactions in each registration of a task, from now on."""
    found: list[int] = []
    register = streams.gateway.register_transactions

    def noting(registration: BatchRegistration) -> Registration:
        found.append(len(registration.members))
        return register(registration)

    monkeypatch.setattr(streams.gateway, "register_transactions", noting)
    return found


@pytest.fixture
def registered(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """``registrations``, which come every 10 ms."""
    monkeypatch.setattr(lease_keeper, "renewal_interval_max_s", 0.01)
    return registrations(streams, monkeypatch)


class TestTask:
    def test_message_says_what_was_written_and_nothing_is_readable(self, streams: FakeStreams) -> None:
        message = writer(streams, partition=4).write([rows(0, 10), rows(10, 15)])
        assert (message.identity, message.partition, message.events) == (IDENTITY, 4, 15)
        assert message.size_bytes == sum(8 + len(event) for event in expected(0, 15))
        (member,) = message.members
        assert (member.partition, member.events, member.bytes) == (4, 15, message.size_bytes)
        assert committed(streams) == []
        assert pickle.loads(pickle.dumps(message)) == message

    def test_no_rows_no_transaction(self, streams: FakeStreams) -> None:
        message = writer(streams).write([rows(0, 0)])
        assert (message.events, message.members) == (0, ())
        assert states(streams) == []

    def test_bad_rows_abort_what_was_begun(self, streams: FakeStreams) -> None:
        with pytest.raises(InvalidArgument, match="1 of 2 events are null"):
            writer(streams).write([rows(0, 3), batch([b"x", None], ["a", "b"])])
        assert states(streams) == ["aborted"]

    def test_error_of_the_rows_themselves(self, streams: FakeStreams) -> None:
        def failing() -> Iterator[pa.RecordBatch]:
            yield rows(0, 3)
            raise RuntimeError("upstream")

        with pytest.raises(RuntimeError, match="upstream"):
            writer(streams).write(failing())
        assert states(streams) == ["aborted"]

    def test_rows_of_a_decided_batch_are_only_counted(self, streams: FakeStreams) -> None:
        commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 5)])], 0)
        again = writer(streams).write([rows(0, 3), rows(3, 5)])
        assert (again.events, again.members) == (5, ())
        assert states(streams) == ["aborted", "committed"]

    def test_a_displaced_run_may_not_write(self, streams: FakeStreams) -> None:
        writer(streams).write([rows(0, 1)])
        displacing = replace(IDENTITY, run_id="run-2")
        commit_batch(streams.gateway, options(), [writer(streams, displacing).write([rows(0, 1)])], 0)
        with pytest.raises(Fenced, match=r"batch 0 of query .* another run of this query does"):
            writer(streams).write([rows(0, 1)])

    def test_a_transaction_that_is_gone_fails_the_task(self, streams: FakeStreams) -> None:
        def abort_in_the_middle() -> Iterator[pa.RecordBatch]:
            yield rows(0, 5)
            (transaction_id,) = streams.gateway.transaction_states()
            streams.gateway.abort_transaction("s", "t", transaction_id)
            yield rows(5, 10)

        with pytest.raises(TransactionFailed, match=r"partition 0 of batch 0 .* is not open any more"):
            writer(streams).write(abort_in_the_middle())

    def test_an_attempt_that_is_too_late_only_counts(self, streams: FakeStreams) -> None:
        """Its batch was committed, with another attempt's transaction, while it wrote."""

        def decided_in_the_middle() -> Iterator[pa.RecordBatch]:
            yield rows(0, 5)
            commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 10)])], 0)
            yield rows(5, 10)

        late = writer(streams).write(decided_in_the_middle())
        assert (late.events, late.members) == (10, ())
        assert committed(streams) == expected(0, 10)

    def test_a_task_without_a_row_yet_keeps_its_batch_open(self, registered: list[int], streams: FakeStreams) -> None:
        """The leases of the tasks that are done end otherwise, while a sort or a skewed key takes its time."""

        def slow() -> Iterator[pa.RecordBatch]:
            eventually_blocking(lambda: 0 in registered, "a registration without transactions")
            yield rows(0, 5)
            eventually_blocking(lambda: registered.count(1) > 1, "a renewal")

        message = writer(streams).write(slow())
        assert (message.events, len(message.members)) == (5, 1)

    def test_a_batch_that_is_decided_before_the_first_row(self, registered: list[int], streams: FakeStreams) -> None:
        """No transaction is begun for rows that are only counted."""
        late = writer(streams)

        def slow() -> Iterator[pa.RecordBatch]:
            commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 10)])], 0)
            eventually_blocking(lambda: late._keeper.refusal is not None, "the refusal")
            yield rows(0, 10)

        message = late.write(slow())
        assert (message.events, message.members) == (10, ())
        assert states(streams) == ["committed"]

    def test_a_task_that_ends_soon_registers_once(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        registered = registrations(streams, monkeypatch)
        writer(streams).write([rows(0, 0)])
        assert registered == []
        writer(streams).write([rows(0, 5), rows(5, 10)])
        assert registered == [1]

    def test_keys_decide_the_segment(self, streams: FakeStreams) -> None:
        commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 100)])], 0)
        for events in streams.events("t").values():
            by_key: dict[int, list[int]] = {}
            for event in events:
                number = int(event.split()[1])
                by_key.setdefault(number % 5, []).append(number)
            for key, numbers in by_key.items():
                assert numbers == list(range(key, 100, 5))


class TestDecision:
    def test_a_batch_is_committed_once(self, streams: FakeStreams) -> None:
        messages = [writer(streams, partition=part).write([rows(part * 10, part * 10 + 10)]) for part in range(3)]
        commit_batch(streams.gateway, options(), messages, 0)
        assert committed(streams) == expected(0, 30)
        recorded, last = streams.gateway.transaction_set(IDENTITY.sink, 0)
        assert (recorded.state, recorded.events, last) == (SetState.FINISHED, 30, 0)
        assert [member.partition for member in recorded.members] == [0, 1, 2]

    def test_replay_with_other_partitioning_writes_nothing(self, streams: FakeStreams) -> None:
        commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 30)])], 0)
        rerun = replace(IDENTITY, run_id="run-2")
        messages = [writer(streams, rerun, part).write([rows(part * 15, part * 15 + 15)]) for part in range(2)]
        commit_batch(streams.gateway, options(), messages, 0)
        assert committed(streams) == expected(0, 30)

    def test_replay_with_other_rows(self, streams: FakeStreams) -> None:
        commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 30)])], 0)
        other = [writer(streams).write([rows(0, 29)])]
        with pytest.raises(ReplayDiffers, match=r"committed with 30 events of .* replayed with 29 events"):
            commit_batch(streams.gateway, options(), other, 0)
        commit_batch(streams.gateway, options(on_replay_mismatch="skip"), other, 0)
        assert committed(streams) == expected(0, 30)

    def test_a_skipped_replay_is_over_when_what_was_committed_is_readable(
        self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The run before it may have ended between the decision and the merge."""
        commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 30)])], 0)
        decide, look, looks = streams.gateway.commit_transaction_set, streams.gateway.transaction_set, 0

        def decided(commit: BatchCommit) -> SetDecision:
            decision = decide(commit)
            return replace(decision, recorded=replace(decision.recorded, state=SetState.COMMITTED))

        def counted(*call: Any) -> Any:
            nonlocal looks
            looks += 1
            return look(*call)

        monkeypatch.setattr(streams.gateway, "commit_transaction_set", decided)
        monkeypatch.setattr(streams.gateway, "transaction_set", counted)
        commit_batch(streams.gateway, options(on_replay_mismatch="skip"), [writer(streams).write([rows(0, 29)])], 0)
        assert looks == 1

    def test_replay_with_as_many_rows_of_other_bytes(
        self, streams: FakeStreams, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Sums of floats may differ in their last digits when a shuffle brings them in another order."""
        commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 30)])], 0)
        commit_batch(streams.gateway, options(), [writer(streams).write([rows(1000, 1030)])], 0)
        assert committed(streams) == expected(0, 30)
        assert "is replayed with 30 events" in caplog.text and "taken for the same" in caplog.text

    def test_an_empty_batch_is_recorded(self, streams: FakeStreams) -> None:
        commit_batch(streams.gateway, options(), [writer(streams).write([])], 0)
        assert streams.gateway.transaction_set(IDENTITY.sink, 0)[1] == 0

    def test_checkpoint_that_went_back(self, streams: FakeStreams) -> None:
        for number in range(3):
            identity = replace(IDENTITY, batch_id=number)
            commit_batch(
                streams.gateway, options(), [writer(streams, identity).write([rows(number, number + 1)])], number
            )
        with pytest.raises(CheckpointBehindSink, match="the checkpoint is older than the stream"):
            commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 1)])], 0)
        assert committed(streams) == expected(0, 3)

    def test_a_version_that_went_back(self, streams: FakeStreams) -> None:
        """Rows of an older version may never have been written: to skip them could lose them."""

        def write(version: int) -> None:
            given = {"scope": "s", "stream": "t", "txn_app_id": "loader", "txn_version": str(version)}
            identity = batch_identity(WriteOptions.parse(given, Use.BATCH_WRITE))
            commit_batch(streams.gateway, options(), [writer(streams, identity).write([rows(version, version + 1)])])

        write(3)
        write(3)
        write(4)
        with pytest.raises(CheckpointBehindSink, match=r"batch 3 of app:loader .* txn_version must grow with every"):
            write(3)
        assert committed(streams) == expected(3, 5)

    def test_displaced_driver(self, streams: FakeStreams) -> None:
        mine = [writer(streams).write([rows(0, 1)])]
        theirs = [writer(streams, replace(IDENTITY, run_id="run-2")).write([rows(0, 1)])]
        commit_batch(streams.gateway, options(), theirs, 0)
        with pytest.raises(Fenced, match="another run of this query writes now"):
            commit_batch(streams.gateway, options(), mine, 0)

    def test_tasks_of_another_run_do_not_displace_the_driver(self, streams: FakeStreams) -> None:
        mine = [writer(streams).write([rows(0, 1)])]
        writer(streams, replace(IDENTITY, run_id="run-2")).write([rows(0, 1)])
        commit_batch(streams.gateway, options(), mine, 0)
        assert committed(streams) == expected(0, 1)

    def test_a_member_that_is_gone_refuses_the_whole_batch(self, streams: FakeStreams) -> None:
        messages = [writer(streams, partition=part).write([rows(part, part + 1)]) for part in range(2)]
        streams.gateway.abort_transaction("s", "t", messages[1].members[0].transaction_id)
        with pytest.raises(BatchRefused, match="nothing of it is readable"):
            commit_batch(streams.gateway, options(), messages, 0)
        assert committed(streams) == []

    def test_orphans_of_earlier_attempts_end_with_the_commit(self, streams: FakeStreams) -> None:
        writer(streams).write([rows(0, 5)])
        commit_batch(streams.gateway, options(), [writer(streams).write([rows(0, 5)])], 0)
        assert states(streams) == ["aborted", "committed"]

    def test_messages_must_agree(self, streams: FakeStreams) -> None:
        mine = writer(streams).write([rows(0, 1)])
        with pytest.raises(InvalidArgument, match="1 of 2 tasks have no commit message"):
            combine([mine, None], 0)
        with pytest.raises(InvalidArgument, match="tasks of two batches"):
            combine([mine, replace(mine, identity=replace(IDENTITY, batch_id=1))], 0)
        with pytest.raises(InvalidArgument, match="Spark commits batch 1"):
            combine([mine], 1)


class TestWaitsForReaders:
    def wait(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, asks: int, **given: str) -> list[float]:
        """The pauses of a commit whose batch is readable after ``asks`` questions."""
        gateway = streams.gateway
        decide, look = gateway.commit_transaction_set, gateway.transaction_set
        states = [SetState.COMMITTED] * asks

        def decided(*call: Any, **named: Any) -> SetDecision:
            found = decide(*call, **named)
            return replace(found, recorded=replace(found.recorded, state=SetState.COMMITTED))

        def looked(sink: Sink, batch_id: int, wait_ms: int) -> tuple[TransactionSet, int]:
            assert wait_ms == readable_wait_ms
            found, last = look(sink, batch_id)
            return replace(found, state=states.pop() if states else SetState.FINISHED), last

        monkeypatch.setattr(gateway, "commit_transaction_set", decided)
        monkeypatch.setattr(gateway, "transaction_set", looked)
        pauses: list[float] = []
        messages = [writer(streams).write([rows(0, 5)])]
        commit_batch(
            gateway, options(**given), messages, 0, sleep=pauses.append, monotonic_s=lambda: sum(pauses, start=0.0)
        )
        return pauses

    def test_it_asks_soon_and_then_at_the_interval(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.wait(streams, monkeypatch, 6) == [0.004, 0.008, 0.016, 0.032, 0.05, 0.05]

    def test_a_shorter_interval_is_kept(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses = self.wait(streams, monkeypatch, 3, transaction_status_poll_interval_ms="2")
        assert pauses == [0.002, 0.002, 0.002]

    def test_it_gives_up(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(Unavailable, match="is committed, but could not be read after 300 s"):
            self.wait(streams, monkeypatch, 1000, transaction_status_poll_interval_ms="60000")


class TestAbort:
    def test_undecided_transactions_are_aborted(self, streams: FakeStreams) -> None:
        abort_batch(streams.gateway, [writer(streams).write([rows(0, 5)]), None])
        assert states(streams) == ["aborted"]

    def test_a_decided_batch_is_left_alone(self, streams: FakeStreams) -> None:
        """Spark calls abort with the same messages after a commit that failed half-way."""
        messages = [writer(streams).write([rows(0, 5)])]
        commit_batch(streams.gateway, options(), messages, 0)
        abort_batch(streams.gateway, messages)
        assert committed(streams) == expected(0, 5)

    def test_it_never_raises(self, streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
        messages = [writer(streams).write([rows(0, 5)])]

        def unreachable(*_: object) -> None:
            raise Unavailable("no controller")

        monkeypatch.setattr(streams.gateway, "transaction_set", unreachable)
        abort_batch(streams.gateway, messages)
        assert states(streams) == ["open"]
        abort_batch(streams.gateway, [None, None])


class TestDirect:
    def direct(self, streams: FakeStreams) -> DirectWriter:
        return DirectWriter(streams.gateway, "s", "t", COLUMNS)

    def test_rows_are_there_at_once(self, streams: FakeStreams) -> None:
        message = self.direct(streams).write([rows(0, 10), rows(10, 20)])
        assert message.events == 20
        assert committed(streams) == expected(0, 20)

    def test_rows_follow_a_scale_in_order(self, streams: FakeStreams) -> None:
        def scaled_in_the_middle() -> Iterator[pa.RecordBatch]:
            yield rows(0, 100)
            streams.scale("t", [0, 1, 2], [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])
            yield rows(100, 200)

        self.direct(streams).write(scaled_in_the_middle())
        assert committed(streams) == expected(0, 200)
        per_key: dict[int, list[int]] = {}
        for events in streams.events("t").values():
            for event in events:
                number = int(event.split()[1])
                per_key.setdefault(number % 5, []).append(number)
        assert all(numbers == sorted(numbers) for numbers in per_key.values())

    def test_sealed_stream(self, streams: FakeStreams) -> None:
        streams.gateway.seal_stream("s", "t")
        with pytest.raises(StreamSealed, match="stream s/t is sealed"):
            self.direct(streams).write([rows(0, 1)])


class TestIdentity:
    def test_of_a_query(self) -> None:
        properties = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "r", "streaming.sql.batchId": "12"}
        assert streaming_identity(properties.get, "s/t") == BatchIdentity(Sink("q", "s/t"), "r", 12)
        for name in properties:
            with pytest.raises(InvalidArgument, match=f"no usable property {name}"):
                streaming_identity({**properties, name: ""}.get, "s/t")
        with pytest.raises(InvalidArgument, match="no usable property"):
            streaming_identity({**properties, "streaming.sql.batchId": "x"}.get, "s/t")
        named = streaming_identity(properties.get, "s/t", label="orders")
        assert named.sink.label == "orders"
        assert named == streaming_identity(properties.get, "s/t"), "the label is no part of the identity"

    def test_of_a_batch_write(self) -> None:
        def made(**given: str) -> BatchIdentity:
            return batch_identity(WriteOptions.parse({"scope": "s", "stream": "t", **given}, Use.BATCH_WRITE))

        named = made(txn_app_id="a", txn_version="7")
        assert (named.sink, named.batch_id) == (Sink("app:a", "s/t"), 7)
        assert made(job_id="j").sink == Sink("job:j", "s/t")
        assert made().sink != made().sink

    def test_two_runs_of_one_job(self, streams: FakeStreams) -> None:
        for _ in range(2):
            identity = batch_identity(WriteOptions.parse({"scope": "s", "stream": "t", "job_id": "j"}, Use.BATCH_WRITE))
            commit_batch(streams.gateway, options(), [writer(streams, identity).write([rows(0, 5)])])
        assert committed(streams) == expected(0, 5)


class TestLeaseKeeper:
    def test_it_renews_until_it_is_refused(self) -> None:
        answers: list[Registration | Unavailable] = [
            Registration(RegisterStatus.REGISTERED, "", -1, 1),
            Unavailable("a passing fault"),
            Registration(RegisterStatus.FENCED, "later run", -1, 0),
        ]

        def renew() -> Registration:
            answer = answers.pop(0)
            if isinstance(answer, Unavailable):
                raise answer
            return answer

        keeper = LeaseKeeper(renew)
        keeper.start()
        keeper.renew_within(1)
        keeper._thread.join(10)
        assert answers == []
        assert keeper.refusal is not None
        assert keeper.refusal.status is RegisterStatus.FENCED
        keeper.stop()

    def test_stop_is_prompt(self) -> None:
        keeper = LeaseKeeper(lambda: Registration(RegisterStatus.REGISTERED, "", -1, 1))
        keeper.start()
        began = time.monotonic()
        keeper.stop()
        assert time.monotonic() - began < 4
