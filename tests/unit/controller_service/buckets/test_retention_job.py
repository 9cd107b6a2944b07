"""Retention on a controller in memory: cuts at the tail, truncation, subscribers, and whose streams are whose."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from controller_service.buckets.retention_job import RetentionJob
from controller_service.buckets.spread import bucket_count, bucket_of, buckets_of
from controller_service.buckets.stream_retention import (
    CUT_REMOVED,
    FORGOTTEN,
    RECORDED,
    TRUNCATED,
    references_max,
    thinned,
)
from controller_service.errors import WaitTimedOut
from controller_service.queue.request_queue import Request, RequestQueue
from controller_service.service import Controller
from controller_service.store.holds import free, take
from controller_service.store.records import (
    RETENTION_SET,
    SUBSCRIBERS,
    TRUNCATION,
    RetentionReference,
    StreamState,
    SubscriberRecord,
    SubscribersRecord,
    retention_cut_key,
)
from controller_service.store.retained_streams import RETAINED_STREAMS_TABLE
from controller_service.store.stream_context import StreamContext
from controller_service.store.versioned_store import Page, Versioned
from controller_service.workflows import truncate_stream
from controller_service.workflows.create_stream import RECORDS_WRITTEN
from controller_service.workflows.update_stream import CONFIGURATION_WRITTEN
from pravega_common.errors import Unavailable
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name
from pravega_common.runtime.failpoints import arm, disarm_all
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock, ShiftedClock
from tests.support.stream_audit import requests_left

S, T = "scope", "stream"
S0, S1 = 0, 1
MINUTE_MS = 60_000
PERIOD_MS = 30 * MINUTE_MS
TIME, SIZE = RetentionType.TIME, RetentionType.SIZE


class Crash(BaseException):
    """Ends a run, as far as a test can."""


class RetentionWorld:
    def __init__(self, controller: Controller, parts: ControllerParts, clock: ShiftedClock) -> None:
        self.controller, self.parts, self.clock = controller, parts, clock
        self.workflows = controller.parts.workflows

    async def create(self, retention: RetentionPolicy | None, segments: int = 2) -> None:
        policy = ScalingPolicy.fixed(segments)
        await self.workflows.create.create(S, T, StreamConfiguration(policy, retention))

    def write(self, identifier: int, length: int) -> None:
        self.parts.access.append(segment_name(S, T, identifier), length)

    async def run(self, minutes: int = 0) -> None:
        """A run of the job, so long after the last."""
        self.clock.now_ms += minutes * MINUTE_MS
        await self.controller.retention.run_once()

    async def apply(self) -> None:
        """Retention of the stream, whose errors are not caught."""
        await self.controller.retention._steps[0](await self.context())

    async def context(self) -> StreamContext:
        return await self.controller.store.open(S, T, TRUNCATION, RETENTION_SET)

    async def head(self) -> dict[int, int]:
        return (await (await self.context()).truncation()).cut

    async def references(self) -> list[tuple[int, int]]:
        """Minutes ago and size of each."""
        record = await (await self.context()).read(RETENTION_SET)
        references = () if record is None else record.references
        return [((self.clock.now_ms - item.recorded_ms) // MINUTE_MS, item.size_till) for item in references]

    async def cut_records(self) -> int:
        page = await self.parts.tables.scan((await self.context()).metadata_table, count_max=10_000)
        return sum(1 for name, _ in page.entries if name.startswith("retentionCut/"))

    async def subscribe(self, **cuts: dict[int, int]) -> None:
        async def change(context: StreamContext) -> None:
            records = {name: SubscriberRecord(name, "id", 0, cut) for name, cut in cuts.items()}
            await context.put(SUBSCRIBERS, SubscribersRecord(records))

        await self.controller.store.update(S, T, change)

    async def scale(self, to_seal: list[int], ranges: list[tuple[float, float]], epoch: int) -> None:
        await self.workflows.scale.start(S, T, to_seal, ranges)
        for _ in range(500):
            context = await self.controller.store.open(S, T)
            if (await context.current_epoch()).epoch == epoch and await context.state() is StreamState.ACTIVE:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the scale does not end")


@pytest.fixture
async def retention() -> AsyncIterator[RetentionWorld]:
    clock = ShiftedClock()
    parts = ControllerParts(clock=clock)
    controller = parts.controller()
    await controller.start()
    await controller.store.create_scope(S)
    yield RetentionWorld(controller, parts, clock)
    await controller.stop()


async def test_a_stream_without_policy_is_left_alone(retention: RetentionWorld) -> None:
    await retention.create(None)
    retention.write(S0, 10)
    await retention.run()
    assert await retention.references() == []


async def test_a_cut_is_taken_at_the_tail_once_per_period(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 1000 * MINUTE_MS))
    retention.write(S0, 10)
    await retention.run()
    retention.write(S1, 5)
    await retention.run(29)
    assert await retention.references() == [(29, 10)]
    await retention.run(1)
    assert await retention.references() == [(30, 10), (0, 15)]
    found = await (await retention.context()).read(retention_cut_key(retention.clock.now_ms))
    assert found is not None and found.cut == {S0: 10, S1: 5}
    assert await retention.head() == {}


async def test_a_clock_that_was_ahead_for_a_while_does_not_stop_retention(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 60 * MINUTE_MS))
    year = 365 * 24 * 60
    retention.write(S0, 10)
    await retention.run()
    retention.write(S0, 10)
    await retention.run(year)
    assert await retention.head() == {S0: 10, S1: 0}
    retention.write(S0, 10)
    await retention.run(30 - year)
    assert await retention.references() == [(30, 10), (30 - year, 20), (0, 30)]
    await retention.run(60)
    assert await retention.head() == {S0: 30, S1: 0}
    assert all(age >= 0 for age, _ in await retention.references())


async def test_nothing_goes_by_a_clock_that_is_not_the_clusters(retention: RetentionWorld) -> None:
    """What is truncated is gone for good, and a wrong clock makes everything old."""
    clock, controller = retention.clock, retention.controller
    retention.parts.cpo.time_of_day = ShiftedClock()
    await retention.create(RetentionPolicy(TIME, 60 * MINUTE_MS))
    retention.write(S0, 10)
    await retention.run()
    clock.set_by_ms = 365 * 24 * 60 * MINUTE_MS
    for _ in range(2):
        assert "clock-differs" in {problem.code for problem in controller.judge.problems()}
        await retention.run()
        recorded = await (await retention.context()).read(RETENTION_SET)
        assert recorded is not None and len(recorded.references) == 1
        assert await retention.head() == {}
        await controller.membership._renew()
    clock.set_by_ms = 0
    await controller.membership._renew()
    assert "clock-differs" not in {problem.code for problem in controller.judge.problems()}
    retention.write(S0, 10)
    await retention.run(60)
    assert await retention.references() == [(60, 10), (0, 20)]


async def test_a_stream_that_is_busy_for_long_has_one_truncation_waiting(
    retention: RetentionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a commit that waits for an operator: a request of each run would fill the queue, and each has its turn
    before the commit."""

    async def wait_no_longer(queue: RequestQueue, request: Request) -> None:
        await queue.submit(request)
        raise WaitTimedOut("it continues")

    monkeypatch.setattr(truncate_stream, "run_and_wait", wait_no_longer)
    store = retention.controller.store
    await retention.create(RetentionPolicy(TIME, 60 * MINUTE_MS))
    _, hold = await take(store, S, T, StreamState.COMMITTING_TRANSACTIONS, "commits")
    for _ in range(6):
        retention.write(S0, 10)
        await retention.run(30)
    assert await requests_left(retention.parts.tables) == 1
    await free(store, hold)

    async def has_ended() -> bool:
        return await requests_left(retention.parts.tables) == 0

    await eventually(has_ended)
    await retention.run()
    await eventually(has_ended)
    assert await retention.head() == {S0: 40, S1: 0}


async def test_what_was_recorded_while_a_clock_was_behind_is_not_old(retention: RetentionWorld) -> None:
    """As by a controller whose clock is behind, until another one took its buckets over."""
    day = 24 * 60
    await retention.create(RetentionPolicy(TIME, day * MINUTE_MS))
    retention.write(S0, 10)
    await retention.run()
    retention.write(S0, 10)
    await retention.run(30 - 2 * day)
    await retention.run(30 + 2 * day)
    assert await retention.head() == {}, "nothing is older than an hour"
    await retention.run(day - 60)
    assert await retention.head() == {S0: 10, S1: 0}, "what was recorded meanwhile may be an hour younger"
    await retention.run(60)
    assert await retention.head() == {S0: 20, S1: 0}


async def test_by_time_what_is_old_enough_goes(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 60 * MINUTE_MS))
    for length in (10, 20, 30):
        retention.write(S0, length)
        await retention.run(30)
    assert await retention.head() == {S0: 10, S1: 0}
    await retention.run(30)
    assert await retention.head() == {S0: 30, S1: 0}
    assert await retention.references() == [(60, 30), (30, 60), (0, 60)]
    assert await retention.cut_records() == 3
    assert retention.parts.access.segments[segment_name(S, T, S0)].start_offset == 30


async def test_by_size_what_is_too_much_goes_also_over_scaling(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(SIZE, 100))
    retention.write(S0, 60)
    await retention.run(30)
    await retention.scale([S0], [(0.0, 0.25), (0.25, 0.5)], 1)
    new, other, _ = (await (await retention.context()).current_epoch()).segment_ids
    retention.write(new, 70)
    await retention.run(30)
    assert await retention.references() == [(30, 60), (0, 130)]
    assert await retention.head() == {}
    retention.write(new, 30)
    await retention.run(30)
    assert await retention.head() == {S0: 60, S1: 0}
    retention.write(new, 70)
    await retention.run(30)
    assert await retention.head() == {new: 70, other: 0, S1: 0}
    assert await retention.references() == [(60, 130), (30, 160), (0, 230)]
    assert segment_name(S, T, S0) not in retention.parts.access.segments


async def test_by_time_subscribers_hold_on_until_the_maximum(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 60 * MINUTE_MS, 120 * MINUTE_MS))
    await retention.subscribe(slow={S0: 1, S1: 0}, fast={S0: 12, S1: 0}, silent={})
    for length in (10, 20, 30):
        retention.write(S0, length)
        await retention.run(30)
    assert await retention.head() == {S0: 1, S1: 0}
    await retention.run(30)
    assert await retention.head() == {S0: 1, S1: 0}
    # The first cut is as old as the maximum now, and still ahead of the slowest: what is beyond it is given up.
    await retention.run(30)
    assert await retention.head() == {S0: 10, S1: 0}
    await retention.subscribe(slow={S0: 60, S1: 0})
    await retention.run(30)
    assert await retention.head() == {S0: 60, S1: 0}


async def test_by_time_the_maximum_counts_where_one_segment_alone_is_not_read(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 60 * MINUTE_MS, 120 * MINUTE_MS))
    for number in range(6):
        retention.write(S0, 10)
        retention.write(S1, 10)
        await retention.subscribe(stuck={S0: 0, S1: 10 * number})
        await retention.run(30)
    assert await retention.head() == {S0: 20, S1: 20}


async def test_nothing_begins_in_segments_that_a_subscriber_has_not_reached(retention: RetentionWorld) -> None:
    """Such a segment waits for one that the subscriber has read, and that would be gone: it would never be begun."""
    await retention.create(RetentionPolicy(TIME, 0), segments=1)
    low, high, merged = 1 << 32 | 1, 1 << 32 | 2, 2 << 32 | 3
    await retention.scale([S0], [(0.0, 0.5), (0.5, 1.0)], 1)
    retention.write(low, 10)
    retention.write(high, 10)
    await retention.subscribe(group={low: 2, high: 0})
    await retention.run(30)
    assert await retention.head() == {low: 2, high: 0}
    await retention.scale([low, high], [(0.0, 1.0)], 2)
    retention.write(merged, 10)
    await retention.subscribe(group={low: 5, merged: -1})
    await retention.run(30)
    assert await retention.head() == {low: 2, high: 0}
    await retention.subscribe(group={merged: 3})
    await retention.run(30)
    assert await retention.head() == {merged: 3}


async def test_by_size_subscribers_hold_on_until_the_maximum(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(SIZE, 10, 100))
    await retention.subscribe(slow={S0: 4, S1: 0}, other={S0: 30, S1: 0})
    retention.write(S0, 50)
    await retention.run(30)
    assert await retention.head() == {S0: 4, S1: 0}
    retention.write(S0, 54)
    await retention.run(30)
    assert await retention.head() == {S0: 50, S1: 0}
    # They are ahead of what is to be kept: the minimum decides.
    await retention.subscribe(slow={S0: 104, S1: 0})
    retention.write(S0, 5)
    await retention.run(30)
    assert await retention.head() == {S0: 50, S1: 0}
    retention.write(S0, 5)
    await retention.run(30)
    assert await retention.head() == {S0: 104, S1: 0}


async def test_a_cut_behind_the_head_is_passed_over_and_forgotten(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 30 * MINUTE_MS))
    retention.write(S0, 10)
    await retention.run()
    retention.write(S0, 10)
    await retention.run(20)
    await retention.workflows.truncate.truncate("by-hand", S, T, {S0: 15, S1: 0})
    await retention.run(10)
    assert await retention.head() == {S0: 15, S1: 0}
    await retention.run(30)
    assert await retention.head() == {S0: 20, S1: 0}
    # Nothing was written since: the newest of equal cuts is enough.
    assert await retention.references() == [(0, 20)]
    assert await retention.cut_records() == 1


async def test_a_sealed_stream_keeps_what_it_has(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 0))
    retention.write(S0, 10)
    await retention.workflows.seal.seal("again", S, T)
    await retention.run(30)
    assert await retention.references() == []
    assert await retention.head() == {}


async def test_a_stream_that_fails_does_not_hold_up_others(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 0))
    lost = StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy(TIME, 0))
    await retention.workflows.create.create(S, "lost", lost)
    del retention.parts.access.segments[segment_name(S, "lost", 0)]
    retention.write(S0, 10)
    await retention.run()
    assert await retention.head() == {S0: 10, S1: 0}


@pytest.mark.parametrize("name", [RECORDED, TRUNCATED, FORGOTTEN])
async def test_the_next_run_completes_one_that_died(retention: RetentionWorld, name: str) -> None:
    def die() -> None:
        raise Crash(name)

    await retention.create(RetentionPolicy(TIME, 60 * MINUTE_MS))
    for length in (10, 20):
        retention.write(S0, length)
        await retention.run(30)
    arm(name, die)
    retention.clock.now_ms += 60 * MINUTE_MS
    with pytest.raises(Crash):
        await retention.apply()
    disarm_all()
    await retention.run()
    assert await retention.head() == {S0: 30, S1: 0}
    assert await retention.references() == [(0, 30)]


@pytest.mark.parametrize("name", [FORGOTTEN, CUT_REMOVED])
async def test_the_cuts_that_a_run_died_removing_are_removed_by_the_next(retention: RetentionWorld, name: str) -> None:
    def die() -> None:
        raise Crash(name)

    await retention.create(RetentionPolicy(TIME, 100 * MINUTE_MS))
    for length in (10, 20, 30):
        retention.write(S0, length)
        await retention.run(30)
    assert await retention.cut_records() == 3
    arm(name, die)
    retention.clock.now_ms += 200 * MINUTE_MS
    with pytest.raises(Crash):
        await retention.apply()
    disarm_all()
    assert await retention.cut_records() > len(await retention.references())
    await retention.run()
    assert await retention.cut_records() == len(await retention.references()) == 1
    record = await (await retention.context()).read(RETENTION_SET)
    assert record is not None and record.dropped == ()


async def test_two_instances_at_once_take_one_cut(retention: RetentionWorld) -> None:
    await retention.create(RetentionPolicy(TIME, 30 * MINUTE_MS))
    retention.write(S0, 10)
    await asyncio.gather(retention.apply(), retention.apply())
    assert await retention.references() == [(0, 10)]
    assert await retention.cut_records() == 1


def test_too_many_references_are_thinned() -> None:
    references = [RetentionReference(index, index) for index in range(references_max + 1)]
    assert thinned(references[1:]) == references[1:]
    kept = thinned(references)
    assert kept[0] == references[0] and kept[-1] == references[-1]
    assert len(kept) == references_max // 2 + 1


# ---- spread ----------------------------------------------------------------------------------------------------------


def test_every_bucket_has_one_owner_among_the_living() -> None:
    for live in (["a"], ["c", "a", "b"], [f"m{index}" for index in range(bucket_count + 3)]):
        shares = {name: buckets_of(name, live) for name in live}
        owned = Counter(bucket for share in shares.values() for bucket in share)
        assert owned == dict.fromkeys(range(bucket_count), 1)
        assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1
    assert buckets_of("dead", ["a", "b"]) == frozenset()


async def test_the_job_runs_every_period_on_its_part_and_outlives_a_lost_oracle(parts: ControllerParts) -> None:
    clock = ManualClock()
    store = parts.controller().store
    await store.create_system_tables()
    await store.create_scope(S)
    names = [f"s{index}" for index in range(30)]
    for name in names:
        entry, _ = await store.add_entry(S, name, ())
        await store.retained.put(S, name, entry.stream_id)
    await store.retained.mark_complete()
    applied: list[str] = []
    live = {"a", "b"}
    lost = False

    async def live_ids() -> set[str]:
        if lost:
            raise Unavailable("the oracle is away")
        return live

    async def apply(context: StreamContext) -> bool:
        applied.append(context.stream)
        return True

    async def advance(seconds: float) -> None:
        await clock.advance(seconds)
        for _ in range(100):
            await asyncio.sleep(0)

    job = RetentionJob(store, [apply], "a", live_ids, clock, PERIOD_MS)
    mine = [name for name in names if bucket_of(S, name) in buckets_of("a", live)]
    assert 0 < len(mine) < len(names)
    await job.start()
    await advance(0)
    await advance(59)
    assert applied == []
    await advance(1)
    assert sorted(applied) == sorted(mine)
    live = {"a"}
    await advance(1799)
    assert len(applied) == len(mine)
    await advance(1)
    assert len(applied) == len(mine) + len(names)
    lost = True
    await advance(1800)
    lost = False
    await advance(60)
    assert len(applied) == len(mine) + 2 * len(names)
    await job.stop()


# ---- the index of streams with a policy ------------------------------------------------------------------------------


POLICY = RetentionPolicy(SIZE, 100)


def configured(retention: RetentionPolicy | None) -> StreamConfiguration:
    return StreamConfiguration(ScalingPolicy.fixed(1), retention)


async def indexed(controller: Controller) -> list[str]:
    return sorted([stream async for page in controller.store.retained.pages() for _, stream, _, _ in page])


async def test_a_run_reads_the_streams_that_have_a_policy_and_no_others() -> None:
    """On a controller that knows none of them yet: the index has said their ids."""
    parts = ControllerParts()
    first = parts.controller()
    await first.start()
    await first.store.create_scope(S)
    for number in range(20):
        retention = POLICY if number < 3 else None
        await first.parts.workflows.create.create(S, f"stream{number}", configured(retention))
    await first.stop()
    second = parts.controller()
    await second.start()
    read: set[str] = set()
    lists: Counter[str] = Counter()
    get_many, scan = parts.tables.get_many, parts.tables.scan

    async def counting(table: str, keys: Sequence[str]) -> list[Versioned | None]:
        if "/metadata.#." in table:
            read.add(table.split("/")[-2])
        lists[table.rsplit("/", 1)[-1].split(".#.")[0]] += 1
        return await get_many(table, keys)

    async def counting_scan(table: str, *more: Any) -> Page:
        lists[table.rsplit("/", 1)[-1].split(".#.")[0]] += 1
        return await scan(table, *more)

    parts.tables.get_many = counting  # type: ignore[method-assign]
    parts.tables.scan = counting_scan  # type: ignore[method-assign, assignment]
    await second.retention.run_once()
    assert read == {"stream0", "stream1", "stream2"}
    assert lists["streamsInScope"] == lists["scopes"] == 0
    await second.stop()


async def test_streams_come_into_the_index_and_leave_it(controller: Controller) -> None:
    workflows = controller.parts.workflows
    await controller.store.create_scope(S)
    for name, retention in (("kept", POLICY), ("given", None), ("taken", POLICY), ("gone", POLICY), ("over", POLICY)):
        await workflows.create.create(S, name, configured(retention))
    await workflows.update.update("1", S, "given", configured(POLICY))
    await workflows.update.update("2", S, "taken", configured(None))
    for name in ("gone", "over"):
        await workflows.seal.seal(f"seal-{name}", S, name)
    await workflows.delete.delete("3", S, "gone")
    assert set(await indexed(controller)) >= {"kept", "given"}
    await controller.retention.run_once()
    assert await indexed(controller) == ["given", "kept"]
    await workflows.create.create(S, "gone", configured(POLICY))
    assert await indexed(controller) == ["given", "gone", "kept"]


async def test_a_policy_that_comes_while_a_run_looks_is_not_lost(controller: Controller) -> None:
    """The run has read the entry and then a stream without policy; before it takes the entry out, the policy comes."""
    workflows = controller.parts.workflows
    await controller.store.create_scope(S)
    await workflows.create.create(S, T, configured(POLICY))
    await workflows.update.update("1", S, T, configured(None))
    retention, expiry = controller.retention._steps

    async def late(context: StreamContext) -> bool:
        takes_part = await retention(context)
        assert not takes_part
        await workflows.update.update("2", S, T, configured(POLICY))
        return takes_part

    controller.retention._steps = (late, expiry)
    await controller.retention.run_once()
    assert await indexed(controller) == [T]


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_run_between_the_entry_and_the_policy_loses_nothing(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    workflows, retained = controller.parts.workflows, controller.store.retained
    await controller.store.create_scope(S)
    if not is_new:
        await workflows.create.create(S, T, configured(None))
    note = retained.note
    seen: list[list[str]] = []

    async def note_and_run(scope: str, stream: str, stream_id: str, configuration: StreamConfiguration) -> None:
        await note(scope, stream, stream_id, configuration)
        if configuration.retention is not None and not seen:
            seen.append(await indexed(controller))
            await controller.retention.run_once()
            seen.append(await indexed(controller))

    monkeypatch.setattr(retained, "note", note_and_run)
    if is_new:
        await workflows.create.create(S, T, configured(POLICY))
    else:
        await workflows.update.update("1", S, T, configured(POLICY))
    assert seen == [[T], []]
    assert await indexed(controller) == [T]


@pytest.mark.parametrize("name", [RECORDS_WRITTEN, CONFIGURATION_WRITTEN])
async def test_a_failure_behind_the_configuration_finds_the_entry(controller: Controller, name: str) -> None:
    workflows = controller.parts.workflows
    await controller.store.create_scope(S)
    looks: list[asyncio.Future[list[str]]] = []

    def look_and_fail() -> None:
        disarm_all()
        looks.append(asyncio.ensure_future(indexed(controller)))
        raise Unavailable(name)

    if name == CONFIGURATION_WRITTEN:
        await workflows.create.create(S, T, configured(None))
        arm(name, look_and_fail)
        await workflows.update.update("1", S, T, configured(POLICY))
    else:
        arm(name, look_and_fail)
        await workflows.create.create(S, T, configured(POLICY))
    assert [await look for look in looks] == [[T]]


async def test_the_index_of_a_former_version_is_made_by_the_first_run(controller: Controller) -> None:
    workflows = controller.parts.workflows
    await controller.store.create_scope(S)
    for number in range(12):
        await workflows.create.create(S, f"stream{number}", configured(POLICY if number % 4 == 0 else None))
    await controller.store.tables.delete_table(RETAINED_STREAMS_TABLE)
    assert await indexed(controller) == []
    await controller.retention.run_once()
    assert await indexed(controller) == ["stream0", "stream4", "stream8"]
    assert await controller.store.retained.is_complete()
