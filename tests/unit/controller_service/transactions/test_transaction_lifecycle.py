"""Create, ping, commit, abort, time out, and what a scale in between makes of a commit."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from prometheus_client import REGISTRY

from controller_service.errors import IllegalState
from controller_service.queue.request_queue import Postpone, Request
from controller_service.store.records import StreamState, sealed_segment_key
from controller_service.store.versioned_store import ANY_VERSION
from controller_service.store.writer_marks import WriterMarks, writer_bytes_max
from controller_service.transactions import commit_transactions, lifecycle
from controller_service.transactions.lifecycle import lease_grace_s
from controller_service.transactions.order_records import CommitState
from controller_service.transactions.records import CommittingRecord, transaction_segments
from controller_service.transactions.scheduling import COMMIT_KIND
from pravega_common import names
from pravega_common.errors import InvalidArgument, StreamNotFound
from pravega_common.model.transactions import PingStatus, TransactionState
from tests.support.eventually import eventually
from tests.support.transaction_world import Instance, World

S, T = "scope", "stream"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def one(world: World) -> Instance:
    return await world.instance()


async def settled(world: World, instance: Instance, identifier: uuid.UUID, state: TransactionState) -> None:
    async def wait() -> None:
        while await instance.transactions.transaction_state(S, T, identifier) is not state:
            await world.clock.sleep(0.05)

    await world.run(wait(), 120)


async def test_ids_carry_the_epoch_and_have_two_non_negative_halves(world: World, one: Instance) -> None:
    created = await world.run(one.transactions.create(S, T, 30_000))
    high, low = names.transaction_id_bits(created.id)
    assert high >> 32 == 0 and low > 0
    other = await world.run((await world.instance()).transactions.create(S, T, 30_000))
    assert other.id != created.id


@pytest.mark.parametrize("lease_ms", [9_999, 600_001, 0, -1])
async def test_a_lease_out_of_bounds_is_refused_by_name(world: World, one: Instance, lease_ms: int) -> None:
    with pytest.raises(InvalidArgument, match=str(lease_ms)):
        await world.run(one.transactions.create(S, T, lease_ms))


async def test_a_missing_stream_and_a_sealed_one_take_no_transactions(world: World, one: Instance) -> None:
    with pytest.raises(StreamNotFound):
        await world.run(one.transactions.create(S, "other", 30_000))
    await world.move_state(S, T, StreamState.SEALING)
    with pytest.raises(IllegalState):
        await world.run(one.transactions.create(S, T, 30_000))


async def test_a_commit_becomes_readable_in_commit_order(world: World, one: Instance) -> None:
    first, second = [await world.begin(one, S, T, label) for label in ("a", "b")]
    assert await world.run(one.transactions.commit(S, T, second.id))
    assert await world.run(one.transactions.commit(S, T, first.id))
    await settled(world, one, first.id, TransactionState.COMMITTED)
    await settled(world, one, second.id, TransactionState.COMMITTED)
    assert list(world.segments.stream_events(S, T).values()) == [["b", "a"], ["b", "a"]]
    assert world.segments.transaction_segments() == []
    assert await (await world.streams.open(S, T)).state() is StreamState.ACTIVE


async def test_what_became_of_transactions_is_counted_once(world: World, one: Instance) -> None:
    def counts() -> list[float]:
        name, rounds = "pravega_controller_transactions_total", "pravega_controller_commit_round_seconds_count"
        found = [REGISTRY.get_sample_value(name, {"event": event}) for event in ("begun", "committed", "aborted")]
        return [value or 0.0 for value in (*found, REGISTRY.get_sample_value(rounds))]

    before = counts()
    first, second, third = [await world.begin(one, S, T, label) for label in ("a", "b", "c")]
    for _ in range(2):
        for decided in (first, second):
            assert await world.run(one.transactions.commit(S, T, decided.id))
        assert await world.run(one.transactions.abort(S, T, third.id))
    for decided in (first, second):
        await settled(world, one, decided.id, TransactionState.COMMITTED)
    await settled(world, one, third.id, TransactionState.ABORTED)
    await eventually(lambda: world.segments.transaction_segments() == [], "the end of the abort")
    begun, committed, aborted, rounds = (now - then for now, then in zip(counts(), before, strict=True))
    assert (begun, committed, aborted) == (3, 2, 1) and 1 <= rounds <= 2


async def test_decisions_are_final_and_repeatable(world: World, one: Instance) -> None:
    committed, aborted = [await world.begin(one, S, T, label) for label in ("a", "b")]
    service = one.transactions
    assert await world.run(service.commit(S, T, committed.id))
    assert await world.run(service.abort(S, T, aborted.id))
    for _ in range(2):
        assert await world.run(service.commit(S, T, committed.id))
        assert not await world.run(service.abort(S, T, committed.id))
        assert await world.run(service.abort(S, T, aborted.id))
        assert not await world.run(service.commit(S, T, aborted.id))
        await settled(world, one, committed.id, TransactionState.COMMITTED)
        await settled(world, one, aborted.id, TransactionState.ABORTED)
    unknown = uuid.UUID(int=1 << 90)
    assert not await world.run(service.commit(S, T, unknown))
    assert not await world.run(service.abort(S, T, unknown))
    assert await world.run(service.transaction_state(S, T, unknown)) is TransactionState.UNKNOWN
    assert await world.run(service.transaction_state(S, "none", unknown)) is TransactionState.UNKNOWN
    assert dict(await world.run(service.list_completed(S, T))) == {
        committed.id: TransactionState.COMMITTED,
        aborted.id: TransactionState.ABORTED,
    }
    assert await world.run(service.list_completed(S, "none")) == []


async def test_ping_answers_in_the_order_of_the_reference(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "a", lease_ms=10_000)
    ping = one.transactions.ping
    assert await world.run(ping(S, T, opened.id, 1)) is PingStatus.OK
    assert await world.run(ping(S, T, opened.id, 600_001)) is PingStatus.LEASE_TOO_LARGE
    assert await world.run(ping(S, T, uuid.UUID(int=7 << 90), 600_001)) is PingStatus.UNKNOWN
    assert await world.run(one.transactions.commit(S, T, opened.id))
    assert await world.run(ping(S, T, opened.id, 600_001)) is PingStatus.COMMITTED
    aborted = await world.begin(one, S, T, "b")
    assert await world.run(one.transactions.abort(S, T, aborted.id))
    assert await world.run(ping(S, T, aborted.id, 20_000)) is PingStatus.ABORTED


async def test_a_transaction_does_not_outlive_its_longest_life(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "a", lease_ms=10_000)
    # 1000 leases of 10 s are 10 000 s; a ping that would reach beyond is refused.
    for _ in range(17):
        assert await world.run(one.transactions.ping(S, T, opened.id, 600_000)) is PingStatus.OK
        await world.clock.pass_time(560)
    status = await world.run(one.transactions.ping(S, T, opened.id, 600_000))
    assert status is PingStatus.MAX_EXECUTION_TIME_EXCEEDED


async def test_a_lease_ends_late_but_it_ends(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "a", lease_ms=10_000)
    await world.clock.pass_time(9)
    assert await world.run(one.transactions.ping(S, T, opened.id, 20_000)) is PingStatus.OK
    await world.clock.pass_time(20 + lease_grace_s - 1)
    assert await world.run(one.transactions.transaction_state(S, T, opened.id)) is TransactionState.OPEN
    await world.clock.pass_time(3)
    await settled(world, one, opened.id, TransactionState.ABORTED)
    assert world.segments.transaction_segments() == []


async def test_another_controller_times_out_what_a_dead_one_left(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "a", lease_ms=10_000)
    await world.run(one.kill())
    other = await world.instance()
    assert await world.run(other.transactions.transaction_state(S, T, opened.id)) is TransactionState.OPEN
    await world.clock.pass_time(10 + lease_grace_s + 2)
    await settled(world, other, opened.id, TransactionState.ABORTED)


class ShiftedClock:
    """The world's time, read from a clock that was set wrong."""

    def __init__(self, world: World, shift_ms: int) -> None:
        self._world, self._shift_ms = world, shift_ms

    def monotonic_s(self) -> float:
        return self._world.clock.monotonic_s()

    def wall_ms(self) -> int:
        return self._world.clock.wall_ms() + self._shift_ms

    def is_right(self) -> bool:
        return True

    async def sleep(self, delay_s: float) -> None:
        await self._world.clock.sleep(delay_s)


@pytest.mark.parametrize("shift_ms", [3_600_000, -3_600_000])
async def test_a_controller_with_another_time_of_day_ends_no_healthy_transaction_and_every_silent_one(
    world: World, one: Instance, shift_ms: int
) -> None:
    opened = await world.begin(one, S, T, "a", lease_ms=60_000)
    other = world.add_instance()
    other.transactions._clock = ShiftedClock(world, shift_ms)
    await world.run(other.start())
    for _ in range(5):
        await world.clock.pass_time(50)
        assert await world.run(one.transactions.ping(S, T, opened.id, 60_000)) is PingStatus.OK
    await world.run(one.kill())
    await world.clock.pass_time(50)
    assert await world.run(other.transactions.transaction_state(S, T, opened.id)) is TransactionState.OPEN
    # Whatever it saw last of the transaction was seen before the other one died.
    await world.clock.pass_time(2 * (60 + lease_grace_s))
    await settled(world, other, opened.id, TransactionState.ABORTED)


async def test_a_renewal_through_another_controller_counts(world: World, one: Instance) -> None:
    other = await world.instance()
    opened = await world.begin(one, S, T, "a", lease_ms=10_000)
    for _ in range(6):
        await world.clock.pass_time(8)
        assert await world.run(other.transactions.ping(S, T, opened.id, 10_000)) is PingStatus.OK
    assert await world.run(one.transactions.commit(S, T, opened.id))


async def test_sealing_ends_open_transactions_and_lets_commits_through(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "open")
    committing = await world.begin(one, S, T, "committing")
    await world.move_state(S, T, StreamState.SEALING)
    assert await world.run(one.transactions.commit(S, T, committing.id))
    assert not await world.run(world.end_all(one, S, T))
    await settled(world, one, opened.id, TransactionState.ABORTED)
    await settled(world, one, committing.id, TransactionState.COMMITTED)

    async def ended() -> None:
        while not await world.end_all(one, S, T):
            await world.clock.sleep(0.05)

    await world.run(ended(), 60)
    assert await (await world.streams.open(S, T)).state() is StreamState.SEALING


async def test_a_commit_waits_for_a_stream_that_is_busy(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "a")
    await world.move_state(S, T, StreamState.SCALING)
    assert await world.run(one.transactions.commit(S, T, opened.id))
    await world.clock.pass_time(2)
    assert await world.run(one.transactions.transaction_state(S, T, opened.id)) is TransactionState.COMMITTING
    await world.move_state(S, T, StreamState.ACTIVE)
    await settled(world, one, opened.id, TransactionState.COMMITTED)


async def test_a_commit_over_a_scale_rolls_the_epochs(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "a")
    scaled = await world.scale_to_one(S, T)
    world.segments.write(scaled.segments[0].name(S, T), "between")
    assert await world.run(one.transactions.commit(S, T, opened.id))
    await settled(world, one, opened.id, TransactionState.COMMITTED)

    context = await world.streams.open(S, T)
    current = await context.current_epoch()
    assert (current.epoch, current.reference_epoch) == (3, 1)
    holding = await context.epoch(2)
    assert (holding.reference_epoch, [segment.number for segment in holding.segments]) == (0, [0, 1])
    assert [segment.segment_id for segment in current.segments] == [names.segment_id(2, 3)]
    events = world.segments.stream_events(S, T)
    assert events["scope/stream/0.#epoch.2"] == events["scope/stream/1.#epoch.2"] == ["a"]
    assert events["scope/stream/2.#epoch.1"] == ["between"] and events["scope/stream/2.#epoch.3"] == []
    sealed = {name for name, segment in world.segments.segments.items() if segment.is_sealed}
    assert not {name for name in sealed if name.endswith("epoch.3")} and len(sealed) == 5
    replaced = await context.sealed([names.segment_id(2, 1), names.segment_id(0, 2), names.segment_id(1, 2)])
    assert [(item.replaced_in_epoch, item.size) for item in replaced.values()] == [(2, 10), (3, 10), (3, 10)]
    assert sealed_segment_key(1).name == "sealed/1"

    # A transaction begun now belongs to the reference epoch of the current one and commits without rolling.
    later = await world.begin(one, S, T, "b")
    assert names.transaction_epoch(later.id) == 1
    assert [segment.segment_id for segment in later.segments] == [names.segment_id(2, 1)]
    assert await world.run(one.transactions.commit(S, T, later.id))
    await settled(world, one, later.id, TransactionState.COMMITTED)
    assert world.segments.stream_events(S, T)["scope/stream/2.#epoch.3"] == ["b"]
    assert (await (await world.streams.open(S, T)).current_epoch()).epoch == 3


async def test_a_source_that_vanished_is_an_error_and_never_a_commit(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "a")
    [first, _] = transaction_segments(S, T, opened.id, [0, 1])
    await world.segments.delete_segments([first])
    assert await world.run(one.transactions.commit(S, T, opened.id))
    await world.clock.pass_time(30)
    assert await world.run(one.transactions.transaction_state(S, T, opened.id)) is TransactionState.COMMITTING
    assert all(events == [] for events in world.segments.stream_events(S, T).values())


async def test_completed_transactions_are_forgotten_after_two_days(world: World, one: Instance) -> None:
    opened = await world.begin(one, S, T, "a")
    assert await world.run(one.transactions.commit(S, T, opened.id))
    await settled(world, one, opened.id, TransactionState.COMMITTED)
    day_ms = 24 * 3600 * 1000
    start_ms = world.clock.wall_ms()
    for day in (1, 2):
        world.clock.skip(day_ms / 1000)
        other = await world.begin(one, S, T, f"day {day}")
        assert await world.run(one.transactions.abort(S, T, other.id))
        await settled(world, one, other.id, TransactionState.ABORTED)
        expected = TransactionState.COMMITTED if day == 1 else TransactionState.UNKNOWN
        assert await world.run(one.transactions.transaction_state(S, T, opened.id)) is expected
    assert world.clock.wall_ms() - start_ms >= 2 * day_ms
    assert len(await world.run(one.transactions.list_completed(S, T))) == 2


async def test_many_commits_take_several_rounds(world: World, one: Instance) -> None:
    opened = [await world.begin(one, S, T, str(index)) for index in range(120)]
    await world.move_state(S, T, StreamState.SCALING)
    for created in opened:
        assert await world.run(one.transactions.commit(S, T, created.id))
    await world.move_state(S, T, StreamState.ACTIVE)
    await settled(world, one, opened[-1].id, TransactionState.COMMITTED)
    for events in world.segments.stream_events(S, T).values():
        assert events == [str(index) for index in range(120)]


async def test_an_id_of_a_writer_that_no_mark_is_kept_under_is_refused(world: World, one: Instance) -> None:
    """In bytes of UTF-8; what is decided keeps its answer."""
    created = await world.begin(one, S, T, "a")
    for writer in ("w" * (writer_bytes_max + 1), "é" * (writer_bytes_max // 2) + "w"):
        with pytest.raises(InvalidArgument, match=f"1 to {writer_bytes_max}"):
            await world.run(one.transactions.commit(S, T, created.id, writer, 5))
    assert await one.transactions.transaction_state(S, T, created.id) is TransactionState.OPEN
    assert await world.run(one.transactions.commit(S, T, created.id, "w" * writer_bytes_max, 5))
    assert await world.run(one.transactions.commit(S, T, created.id, "w" * (writer_bytes_max + 1), 5))


async def test_ids_of_writers_that_a_former_version_took_hold_up_no_commits(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a round do not fit its record."""
    count, length = 100, 11_000
    monkeypatch.setattr(lifecycle, "check_writer", lambda writer: None)
    opened = [await world.begin(one, S, T, str(index)) for index in range(count)]
    await world.move_state(S, T, StreamState.SCALING)
    for created in opened:
        assert await world.run(one.transactions.commit(S, T, created.id, "w" * length, 5))
    await world.move_state(S, T, StreamState.ACTIVE)
    await settled(world, one, opened[-1].id, TransactionState.COMMITTED)
    for events in world.segments.stream_events(S, T).values():
        assert events == [str(index) for index in range(count)]


async def test_a_round_is_as_large_as_the_epoch_of_its_transactions_admits(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have more segments than the stream has by now."""
    monkeypatch.setattr(commit_transactions, "lengths_per_round_max", 4)
    begin_round, taken = one.transactions.records.begin_round, []

    async def begin(scope: str, stream: str, state: CommitState, record: CommittingRecord) -> int:
        taken.append(len(record.transactions))
        return await begin_round(scope, stream, state, record)

    monkeypatch.setattr(one.transactions.records, "begin_round", begin)
    opened = [await world.begin(one, S, T, str(index)) for index in range(5)]
    await world.scale_to_one(S, T)
    await world.move_state(S, T, StreamState.SCALING)
    for created in opened:
        assert await world.run(one.transactions.commit(S, T, created.id))
    await world.move_state(S, T, StreamState.ACTIVE)
    await settled(world, one, opened[-1].id, TransactionState.COMMITTED)
    assert taken == [2, 2, 1]


async def test_the_latest_noted_commit_of_a_writer_becomes_its_mark(world: World, one: Instance) -> None:
    opened = [await world.begin(one, S, T, str(index)) for index in range(4)]
    await world.move_state(S, T, StreamState.SCALING)
    for created, (writer, time_ms) in zip(opened, [("w", 20), ("w", 30), ("w", 10), ("v", None)], strict=True):
        assert await world.run(one.transactions.commit(S, T, created.id, writer, time_ms))
    await world.move_state(S, T, StreamState.ACTIVE)
    await settled(world, one, opened[-1].id, TransactionState.COMMITTED)
    marks = WriterMarks(world.streams)
    mark = await marks.get(S, T, "w")
    assert mark is not None and (mark.timestamp, mark.position) == (30, {0: 20, 1: 20})
    assert await marks.get(S, T, "v") is None


async def test_a_round_whose_segments_were_sealed_under_it_goes_on_as_a_rolling_one(
    world: World, one: Instance
) -> None:
    """Two workers on a stream, one of which gave its state free: nothing is lost, and nothing is there twice."""
    opened = [await world.begin(one, S, T, label) for label in ("a", "b")]
    await world.move_state(S, T, StreamState.SCALING)
    for created in opened:
        assert await world.run(one.transactions.commit(S, T, created.id))
    await world.move_state(S, T, StreamState.ACTIVE)
    one.die_at("transaction_commit.round_recorded")
    await world.clock.pass_time(5)
    assert one.switch.crashed
    await world.run(one.kill())
    # One source was merged, then the other worker's mistake lets a scale through.
    await world.segments.merge_batch("scope/stream/0.#epoch.0", transaction_segments(S, T, opened[0].id, [0]))
    await world.move_state(S, T, StreamState.ACTIVE)
    await world.scale_to_one(S, T)
    other = await world.instance()
    await settled(world, other, opened[1].id, TransactionState.COMMITTED)
    events = world.segments.stream_events(S, T)
    assert [events[f"scope/stream/0.#epoch.{epoch}"] for epoch in (0, 2)] == [["a"], ["b"]]
    assert events["scope/stream/1.#epoch.2"] == ["a", "b"]
    assert world.segments.transaction_segments() == []


async def test_completed_transactions_listed_are_bounded(world: World, one: Instance) -> None:
    records = one.transactions.records
    ids = [uuid.UUID(int=index) for index in range(1, 621)]
    for start in range(0, 620, 31):
        await world.run(records.complete(S, T, ids[start : start + 31], TransactionState.ABORTED))
        await world.run(records.complete(S, T, ids[start : start + 31], TransactionState.ABORTED))
    listed = await world.run(one.transactions.list_completed(S, T))
    assert [identifier for identifier, _ in listed] == ids[:-501:-1]


async def test_what_was_completed_is_not_listed_once_its_stream_is_deleted(world: World, one: Instance) -> None:
    created = await world.begin(one, S, T, "a")
    await world.run(one.transactions.commit(S, T, created.id))
    await settled(world, one, created.id, TransactionState.COMMITTED)
    tables = await world.run(one.transactions.records.tables(S, T))
    await world.run(world.streams.remove_stream(S, T, tables.stream_id))
    assert await world.run(one.transactions.list_completed(S, T)) == []


async def test_a_record_that_cannot_be_read_keeps_no_other_stream_from_being_swept(world: World, one: Instance) -> None:
    await world.create_stream(S, "a damaged one", 1)
    damaged = await world.begin(one, S, "a damaged one", "a")
    opened = await world.begin(one, S, T, "b", lease_ms=10_000)
    await world.run(one.kill())
    table = (await world.streams.open(S, "a damaged one")).transactions_table
    await world.store.put(table, damaged.id.hex, b"not a record", ANY_VERSION)
    other = await world.instance()
    await world.clock.pass_time(10 + lease_grace_s + 5)
    await settled(world, other, opened.id, TransactionState.ABORTED)


async def test_sealing_aborts_many_transactions_at_once(world: World, one: Instance) -> None:
    created = [await world.begin(one, S, T, str(number)) for number in range(64)]
    call = one.switch.call

    async def late(*args: Any, **kwargs: Any) -> Any:
        await world.clock.sleep(0.1)
        return await call(*args, **kwargs)

    one.switch.call = late  # type: ignore[method-assign]
    await world.move_state(S, T, StreamState.SEALING)
    before_s = world.clock.monotonic_s()
    await world.run(world.end_all(one, S, T))
    # One by one it would take 20 s: each abort is a read, a write and a request at least.
    assert world.clock.monotonic_s() - before_s < 3
    states = [await world.run(one.transactions.transaction_state(S, T, item.id)) for item in created[-2:]]
    assert set(states) <= {TransactionState.ABORTING, TransactionState.ABORTED}


async def test_a_stream_with_many_commits_is_free_for_others_between_two_requests(
    world: World, one: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_transactions, "rounds_per_request_max", 2)
    monkeypatch.setattr(commit_transactions, "lengths_per_round_max", 1)
    scheduler = one.transactions.scheduler
    schedule = scheduler.schedule_commit

    async def later(scope: str, stream: str) -> str:
        return ""

    monkeypatch.setattr(scheduler, "schedule_commit", later)
    for label in "abc":
        created = await world.begin(one, S, T, label)
        assert await world.run(one.transactions.commit(S, T, created.id))
    monkeypatch.setattr(scheduler, "schedule_commit", schedule)
    with pytest.raises(Postpone):
        await world.run(one.transactions._commits.handle(Request("commit", COMMIT_KIND, f"{S}/{T}", {})))
    assert await (await world.streams.open(S, T)).state() is StreamState.ACTIVE
    assert sorted(await world.readable(S, T)) == ["a", "a", "b", "b"]
    await world.run(one.transactions.scheduler.schedule_commit(S, T))
    await world.clock.pass_time(5)
    assert sorted(await world.readable(S, T)) == ["a", "a", "b", "b", "c", "c"]
