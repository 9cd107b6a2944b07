"""The quota of a scope: what is counted, what is refused, and that the count is right after every crash and race."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from controller_service.errors import QuotaExceeded
from controller_service.store import byte_limits as store_limits
from controller_service.store.byte_limits import ByteLimitsRecord
from controller_service.store.members import KeyValueTableRecord, ScopeMemberState
from controller_service.store.records import StreamState
from controller_service.store.scope_counts import COUNTS_TABLE, REFUSED
from controller_service.store.scope_store import list_table_name
from controller_service.workflows.auto_scale import REFUSED_BY_QUOTA
from pravega_common.errors import DataCorruption, InvalidArgument, ScopeNotFound, SegmentNotFound, UnknownOutcome
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.scope_quota import ScopeQuota, ScopeUse, quota_count_max, quota_rate_max, quota_rate_min
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import SYSTEM_SCOPE, mark_stream
from pravega_common.runtime import failpoints
from pravega_common.services.cluster.byte_limits import AllByteLimits, ByteLimits, limited_scopes_max
from pravega_common.services.cluster.cpo import payload_bytes_max
from tests.support.gate import Gate
from tests.support.stream_audit import requests_left
from tests.support.workflow_steps import GROUP_ID, TWO, S, Scene, byte_limits, group_config, scene_of_two

ONE = StreamConfiguration(ScalingPolicy.fixed(1))
THREE = StreamConfiguration(ScalingPolicy.fixed(3))
BY_RATE = StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 7, 4, 1))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = await scene_of_two()
    yield made
    await made.world.close()


async def limit(scene: Scene, streams: int | None = None, segments: int | None = None) -> None:
    await scene.run(scene.first.quota.set(S, ScopeQuota(streams, segments)))


async def use(scene: Scene) -> ScopeUse:
    described = await scene.first.quota.describe(S)
    assert described.is_counted
    return described.use


async def test_a_stream_beyond_the_quota_is_refused_and_nothing_is_left_of_it(scene: Scene) -> None:
    await limit(scene, streams=1)
    await scene.make_stream("a")
    with pytest.raises(QuotaExceeded, match=r"scope scope would have 2 streams \(it has 1\), its quota is 1"):
        await scene.make_stream("b")
    names = [name for name, _ in (await scene.world.streams.list_streams(S))[0]]
    assert sorted(names) == [mark_stream("a"), "a"]
    assert await use(scene) == ScopeUse(1, 2)
    # One that exists is not refused: its creation says that it is there.
    assert await scene.world.run(scene.first.create.create(S, "a", TWO)) is False


async def test_a_stream_of_more_segments_than_are_left_is_refused(scene: Scene) -> None:
    await limit(scene, segments=4)
    await scene.make_stream("a", THREE)
    with pytest.raises(QuotaExceeded, match="would have 5 segments"):
        await scene.make_stream("b")
    await scene.make_stream("b", ONE)
    assert await use(scene) == ScopeUse(2, 4)


async def test_a_creation_costs_the_same_however_many_streams_are_counted(scene: Scene) -> None:
    await limit(scene, streams=100)

    async def requests(name: str) -> int:
        before = scene.first.switch.count
        await scene.run(scene.first.create.create(S, name, ONE))
        return scene.first.switch.count - before

    # The first creation makes the record of the totals.
    await requests("first")
    alone = await requests("second")
    for number in range(40):
        await scene.make_stream(f"s{number}", ONE)
    assert await requests("last") == alone


async def test_refusals_are_counted(scene: Scene) -> None:
    refused = [REFUSED.labels(what) for what in ("streams", "segments")]
    before = [counter._value.get() for counter in (*refused, REFUSED_BY_QUOTA)]
    await limit(scene, streams=1, segments=1)
    await scene.make_stream("a", BY_RATE)
    with pytest.raises(QuotaExceeded):
        await scene.make_stream("b", BY_RATE)
    event = AutoScaleEvent(S, "a", 0, ScaleDirection.UP, scene.world.clock.wall_ms(), 2, False, 1)
    await scene.run(scene.first.auto_scale.handle(event))
    after = [counter._value.get() for counter in (*refused, REFUSED_BY_QUOTA)]
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 1, 1]


async def test_a_deleted_stream_makes_room(scene: Scene) -> None:
    await limit(scene, streams=1)
    await scene.make_stream("a")
    await scene.run(scene.first.seal.seal("s", S, "a"))
    with pytest.raises(QuotaExceeded):
        await scene.make_stream("b")
    await scene.run(scene.first.delete.delete("d", S, "a"))
    assert await use(scene) == ScopeUse()
    await scene.make_stream("b")


async def test_a_scale_and_an_update_beyond_the_quota_are_refused(scene: Scene) -> None:
    await limit(scene, segments=3)
    await scene.make_stream("a")
    await scene.scale("a")
    assert await use(scene) == ScopeUse(1, 3)
    with pytest.raises(QuotaExceeded, match="would have 4 segments"):
        await scene.scale("a")
    with pytest.raises(QuotaExceeded, match="would have 5 segments"):
        await scene.run(scene.first.update.update("u", S, "a", StreamConfiguration(ScalingPolicy.fixed(5))))
    context = await scene.world.streams.open(S, "a")
    assert await context.state() is StreamState.ACTIVE
    assert (await context.configuration()).configuration == TWO
    # Fewer segments are no matter of the quota, and what they leave is free again.
    await scene.run(scene.first.update.update("v", S, "a", ONE))
    assert await use(scene) == ScopeUse(1, 1)
    await scene.make_stream("b")


async def test_an_automatic_scale_beyond_the_quota_is_passed_over(scene: Scene) -> None:
    await limit(scene, segments=1)
    await scene.make_stream("a", BY_RATE)
    event = AutoScaleEvent(S, "a", 0, ScaleDirection.UP, scene.world.clock.wall_ms(), 2, False, 1)
    await scene.run(scene.first.auto_scale.handle(event))
    await limit(scene, segments=2)
    await scene.run(scene.first.auto_scale.handle(event))
    await scene.world.clock.pass_time(5)
    assert await use(scene) == ScopeUse(1, 2)


async def test_a_reader_group_counts_by_its_stream(scene: Scene) -> None:
    await scene.make_stream("stream")
    await limit(scene, streams=1)
    with pytest.raises(QuotaExceeded):
        await scene.run(scene.first.groups.create(S, "group", GROUP_ID, group_config("stream")))
    assert await scene.first.groups.records.get(S, "group") is None
    await limit(scene, streams=2)
    await scene.run(scene.first.groups.create(S, "group", GROUP_ID, group_config("stream")))
    assert await use(scene) == ScopeUse(2, 3)
    await scene.run(scene.first.groups.delete(S, "group", GROUP_ID))
    assert await use(scene) == ScopeUse(1, 2)


async def make_table(scene: Scene, name: str, partitions: int) -> None:
    new = KeyValueTableRecord(scene.world.new_id(), 1, ScopeMemberState.CREATING, partitions, 4, 0)
    await scene.run(scene.second.tables.create(S, name, new))


async def test_the_segments_of_key_value_tables_count_and_the_tables_do_not(scene: Scene) -> None:
    await limit(scene, streams=1, segments=5)
    await make_table(scene, "a", 3)
    assert await use(scene) == ScopeUse(0, 3)
    with pytest.raises(QuotaExceeded, match="key-value table scope/b: scope scope would have 6 segments"):
        await make_table(scene, "b", 3)
    assert await scene.first.tables.records.get(S, "b") is None
    assert len(scene.world.segments.tables) == 3
    with pytest.raises(QuotaExceeded, match="stream scope/s: scope scope would have 6 segments"):
        await scene.make_stream("s", THREE)
    await scene.make_stream("s", TWO)
    await scene.run(scene.first.tables.delete(S, "a"))
    assert await use(scene) == ScopeUse(1, 2)
    await make_table(scene, "b", 3)
    assert await use(scene) == ScopeUse(1, 5)


async def test_tables_from_before_the_quota_are_counted(scene: Scene) -> None:
    await make_table(scene, "a", 3)
    await limit(scene, segments=2)
    assert await use(scene) == ScopeUse(0, 3)
    await limit(scene)
    await scene.run(scene.first.tables.delete(S, "a"))
    await make_table(scene, "b", 1)
    await limit(scene, segments=2)
    assert await use(scene) == ScopeUse(0, 1)


async def test_tables_that_are_made_at_once_do_not_share_the_last_place(scene: Scene) -> None:
    await limit(scene, segments=3)

    async def create(number: int) -> bool:
        new = KeyValueTableRecord(scene.world.new_id(), 1, ScopeMemberState.CREATING, 1, 4, 0)
        try:
            return await (scene.first, scene.second)[number % 2].tables.create(S, f"t{number}", new)
        except QuotaExceeded:
            return False

    made = await scene.world.run(asyncio.gather(*(create(number) for number in range(8))))
    assert sum(made) == 3 == len(scene.world.segments.tables)
    assert await use(scene) == ScopeUse(0, 3)


async def test_streams_from_before_the_quota_are_counted(scene: Scene) -> None:
    for name, configuration in (("a", TWO), ("b", THREE)):
        await scene.make_stream(name, configuration)
    await limit(scene, streams=1)
    assert await use(scene) == ScopeUse(2, 5)
    with pytest.raises(QuotaExceeded, match=r"3 streams \(it has 2\), its quota is 1"):
        await scene.make_stream("c")


async def test_a_stream_that_is_half_made_while_the_first_quota_comes_is_counted(scene: Scene) -> None:
    """Its creation began without a quota, and the count of the scope finds no records of it yet."""
    gate = Gate(scene.world)
    gate.at(scene.second.streams, "first_segment_number", "'a'")
    creation = asyncio.ensure_future(scene.second.create.create(S, "a", TWO))
    await gate.come()
    await limit(scene, streams=5)
    assert await use(scene) == ScopeUse()
    gate.opened.set()
    assert await scene.world.run(creation)
    assert await use(scene) == ScopeUse(1, 2)


async def test_a_stream_is_counted_with_the_segments_of_the_run_that_wrote_its_records(scene: Scene) -> None:
    """Two calls make it at once, with different numbers of segments; the first one counts it, the second one makes
    it."""
    await limit(scene, streams=5)
    entry, _ = await scene.world.streams.add_entry(S, "a", ())
    gate = Gate(scene.world)
    gate.at(scene.first.streams, "first_segment_number", "'a'")
    late = asyncio.ensure_future(scene.first.create.carry_out(S, "a", entry.stream_id, TWO))
    await gate.come()
    assert await use(scene) == ScopeUse(1, 2)
    assert await scene.world.run(scene.second.create.carry_out(S, "a", entry.stream_id, THREE))
    assert await use(scene) == ScopeUse(1, 3)
    gate.opened.set()
    assert await scene.world.run(late)
    assert await use(scene) == ScopeUse(1, 3)


async def test_what_changes_without_a_quota_is_counted_with_the_next_one(scene: Scene) -> None:
    await limit(scene, streams=5)
    for name in ("a", "b"):
        await scene.make_stream(name)
    await limit(scene)
    assert not (await scene.first.quota.describe(S)).is_counted
    await scene.scale("a")
    await scene.run(scene.first.seal.seal("s", S, "b"))
    await scene.run(scene.first.delete.delete("d", S, "b"))
    await scene.make_stream("c", ONE)
    await limit(scene, streams=5)
    assert await use(scene) == ScopeUse(2, 4)


async def test_streams_that_are_made_at_once_do_not_share_the_last_place(scene: Scene) -> None:
    await limit(scene, streams=3)

    async def create(number: int) -> bool:
        one = (scene.first, scene.second)[number % 2]
        try:
            return await one.create.create(S, f"s{number}", ONE)
        except QuotaExceeded:
            return False

    made = await scene.world.run(asyncio.gather(*(create(number) for number in range(12))))
    await scene.world.clock.pass_time(5)
    assert sum(made) == 3
    assert await use(scene) == ScopeUse(3, 3)
    streams = [name for name, _ in (await scene.world.streams.list_streams(S))[0] if not name.startswith("_")]
    assert len(streams) == 3


async def test_a_name_of_a_mark_stream_is_no_way_around_the_quota(scene: Scene) -> None:
    await limit(scene, streams=1)
    with pytest.raises(QuotaExceeded, match="choose another name"):
        await scene.make_stream(mark_stream("a"), THREE)
    await scene.make_stream("a", ONE)
    with pytest.raises(QuotaExceeded, match="neither made nor scaled by callers"):
        await scene.scale(mark_stream("a"))
    assert await use(scene) == ScopeUse(1, 1)


async def test_no_record_is_left_of_a_deleted_scope(scene: Scene) -> None:
    await limit(scene, streams=5)
    await scene.make_stream("a")
    record = await scene.world.streams.usable_scope(S)
    await scene.run(scene.first.delete_scope.delete(S))
    table = list_table_name(S, record.scope_id, COUNTS_TABLE)
    with pytest.raises(SegmentNotFound):
        await scene.world.store.get(table, "total")
    with pytest.raises(ScopeNotFound):
        await limit(scene, streams=5)


async def test_the_system_and_impossible_limits_are_refused(scene: Scene) -> None:
    with pytest.raises(InvalidArgument, match="the system's own"):
        await scene.run(scene.first.quota.set(SYSTEM_SCOPE, ScopeQuota(1)))
    for wrong in (-1, quota_count_max + 1):
        with pytest.raises(InvalidArgument, match=f"a quota of {wrong} streams"):
            ScopeQuota(streams=wrong)


@pytest.mark.parametrize("step", ["controller.quota_recorded", "controller.quota_streams_counted"])
async def test_a_request_of_a_dead_controller_does_not_undo_a_later_one(scene: Scene, step: str) -> None:
    scene.first.die_at(step)
    with pytest.raises(UnknownOutcome):
        await limit(scene, streams=1)
    failpoints.disarm_all()
    await scene.run(scene.second.quota.set(S, ScopeQuota(streams=7)))
    await scene.first.kill()
    # Its request is taken over now.
    await scene.world.clock.pass_time(130)
    assert await requests_left(scene.world.store) == 0
    assert (await scene.second.quota.describe(S)).quota == ScopeQuota(streams=7)


async def test_the_stores_are_told_the_limits_of_bytes(scene: Scene) -> None:
    await limit(scene, streams=5)
    assert await byte_limits(scene) == {}
    await scene.run(scene.first.quota.set(S, ScopeQuota(bytes_in=70_000, bytes_out=80_000)))
    assert await byte_limits(scene) == {S: ByteLimits(70_000, 80_000)}
    await scene.run(scene.first.quota.set(S, ScopeQuota(bytes_out=90_000)))
    assert await byte_limits(scene) == {S: ByteLimits(None, 90_000)}
    await limit(scene)
    assert await byte_limits(scene) == {}


async def test_a_scope_that_is_made_again_has_no_limits_of_bytes(scene: Scene) -> None:
    await scene.run(scene.first.quota.set(S, ScopeQuota(bytes_in=70_000)))
    await scene.run(scene.first.delete_scope.delete(S))
    assert await byte_limits(scene) == {}
    await scene.world.streams.create_scope(S)
    await limit(scene, streams=5)
    assert await byte_limits(scene) == {}


async def test_the_number_of_scopes_with_limits_of_bytes_is_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_limits, "limited_scopes_max", 2)
    for number in range(3):
        await scene.world.streams.create_scope(f"s{number}")
    for number in range(2):
        await scene.run(scene.first.quota.set(f"s{number}", ScopeQuota(bytes_in=70_000)))
    with pytest.raises(QuotaExceeded, match="2 scopes have limits of bytes a second already"):
        await scene.run(scene.first.quota.set("s2", ScopeQuota(streams=1, bytes_in=70_000)))
    assert (await scene.first.quota.describe("s2")).quota.is_none
    await scene.run(scene.first.quota.set("s2", ScopeQuota(streams=1)))
    await scene.run(scene.first.quota.set("s1", ScopeQuota(bytes_in=90_000)))
    await scene.run(scene.first.quota.set("s0", ScopeQuota()))
    await scene.run(scene.first.quota.set("s2", ScopeQuota(bytes_in=70_000)))
    assert sorted(await byte_limits(scene)) == ["s1", "s2"]


async def test_limits_of_many_scopes_at_once_are_all_kept(scene: Scene) -> None:
    for number in range(12):
        await scene.world.streams.create_scope(f"s{number}")
    ones = (scene.first, scene.second)
    changes = (ones[n % 2].quota.set(f"s{n}", ScopeQuota(bytes_in=70_000 + n)) for n in range(12))
    await scene.world.run(asyncio.gather(*changes), 600)
    assert await byte_limits(scene) == {f"s{n}": ByteLimits(70_000 + n) for n in range(12)}


async def test_an_oracle_that_lost_the_limits_gets_them_again(scene: Scene) -> None:
    await scene.run(scene.first.quota.set(S, ScopeQuota(bytes_in=70_000)))
    scene.world.cpo._constants.clear()
    await ByteLimitsRecord(scene.world.streams, scene.world.cpo).copy()
    assert await byte_limits(scene) == {S: ByteLimits(70_000)}


def test_rates_out_of_range_are_refused() -> None:
    for wrong in (0, quota_rate_min - 1, quota_rate_max + 1):
        with pytest.raises(InvalidArgument, match=f"a quota of {wrong} bytes_out"):
            ScopeQuota(bytes_out=wrong)


def test_the_record_of_all_limits_fits_a_constant() -> None:
    """With names of the longest kind, and a few more than may be, as calls at one moment may add them."""
    one = ByteLimits(quota_rate_max, quota_rate_max)
    full = AllByteLimits(10**9, {f"{number:0255}": one for number in range(limited_scopes_max + 50)})
    assert len(full.encode()) < payload_bytes_max
    assert AllByteLimits.decode(full.encode()) == full


def test_what_is_no_record_of_limits_is_damage() -> None:
    for text in ("", "[]", '{"v":2}', '{"v":1,"number":1,"scopes":{"s":[-1,null]}}', '{"v":1,"scopes":{}}'):
        with pytest.raises(DataCorruption, match="byte limits"):
            AllByteLimits.decode(text)
