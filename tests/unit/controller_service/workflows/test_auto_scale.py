"""Reports of stores, and the scales that come of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from controller_service.policies.auto_scale import AutoScaleLimits
from controller_service.queue.request_queue import Postpone
from controller_service.store.records import COLD_SEGMENTS, ColdSegmentsRecord, EpochRecord, StreamState
from controller_service.workflows.auto_scale import AutoScale
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name
from tests.support.stream_audit import audit_streams, requests_left
from tests.support.workflow_steps import S, Scene, T, scene_of_two

UP, DOWN = ScaleDirection.UP, ScaleDirection.DOWN
VALID_MS = AutoScaleLimits().report_valid_ms


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await scene_of_two()
    yield scene
    await scene.world.close()


async def make(scene: Scene, segments: int = 1, minimum: int = 1, factor: int = 4) -> None:
    """A stream by rate with so many segments."""
    policy = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 10, factor, minimum)
    await scene.make_stream(T, StreamConfiguration(policy))
    if segments > minimum:
        (first, *_) = (await epoch(scene)).segment_ids
        await scene.run(scene.second.auto_scale.handle(report(scene, first, UP, segments - minimum + 1)))
        await scene.world.clock.pass_time(5)
    assert len((await epoch(scene)).segments) == segments


def report(
    scene: Scene, segment: int, direction: ScaleDirection, splits: int = 0, *, age_ms: int = 0, silent: bool = False
) -> AutoScaleEvent:
    timestamp_ms = scene.world.clock.wall_ms() - age_ms
    return AutoScaleEvent(S, T, segment, direction, timestamp_ms, splits, silent, 7)


async def epoch(scene: Scene) -> EpochRecord:
    return await (await scene.world.streams.open(S, T)).current_epoch()


async def marks(scene: Scene) -> dict[int, object]:
    context = await scene.world.streams.open(S, T, COLD_SEGMENTS)
    return dict((await context.read(COLD_SEGMENTS) or ColdSegmentsRecord()).marks)


async def told(scene: Scene, *events: AutoScaleEvent) -> int:
    """Handle the reports one after the other, and let time pass; how many segments there are then."""
    for event in events:
        await scene.run(scene.first.auto_scale.handle(event))
        await scene.world.clock.pass_time(5)
    return len((await epoch(scene)).segments)


async def test_a_hot_segment_is_split_at_once_into_equal_parts(scene: Scene) -> None:
    await make(scene)
    assert await told(scene, report(scene, 0, UP, 4)) == 4
    assert [(found.key_start, found.key_end) for found in (await epoch(scene)).segments] == [
        (0.0, 0.25),
        (0.25, 0.5),
        (0.5, 0.75),
        (0.75, 1.0),
    ]
    name = segment_name(S, T, (await epoch(scene)).segment_ids[0])
    assert scene.world.segments.segments[name].target_rate == 10


async def test_a_report_that_comes_twice_splits_once(scene: Scene) -> None:
    await make(scene)
    event = report(scene, 0, UP, 2)
    assert await told(scene, event, event, event) == 2


async def test_two_controllers_split_once(scene: Scene) -> None:
    await make(scene)
    event = report(scene, 0, UP, 3)
    work = asyncio.gather(scene.first.auto_scale.handle(event), scene.second.auto_scale.handle(event))
    await scene.run(work)
    await scene.world.clock.pass_time(10)
    assert len((await epoch(scene)).segments) == 3


async def test_old_reports_change_nothing(scene: Scene) -> None:
    await make(scene)
    assert await told(scene, report(scene, 0, UP, 2, age_ms=VALID_MS + 1_000)) == 1
    assert await told(scene, report(scene, 0, UP, 2, age_ms=VALID_MS - 1_000)) == 2


@pytest.mark.parametrize("direction", [UP, DOWN])
async def test_fixed_streams_stay_as_they_are(scene: Scene, direction: ScaleDirection) -> None:
    await scene.make_stream(T, StreamConfiguration(ScalingPolicy.fixed(2)))
    assert await told(scene, *(report(scene, segment, direction, 3) for segment in (0, 1))) == 2
    assert await marks(scene) == {}


async def test_segments_that_are_gone_are_ignored(scene: Scene) -> None:
    await make(scene, 2)
    assert await told(scene, report(scene, 0, UP, 2), report(scene, 12_345, UP, 2), report(scene, 0, DOWN)) == 2
    assert await marks(scene) == {}


async def test_streams_that_are_gone_sealed_or_internal_are_ignored(scene: Scene) -> None:
    for scope, stream in (("nobody", T), (S, "nobody"), ("_system", "_requeststream"), (S, "_MARKstream")):
        await scene.run(
            scene.first.auto_scale.handle(
                AutoScaleEvent(scope, stream, 0, UP, scene.world.clock.wall_ms(), 2, False, 1)
            )
        )
    await make(scene, 2)
    await scene.run(scene.second.seal.seal("seal", S, T))
    (first, second) = (await epoch(scene)).segment_ids
    assert await told(scene, report(scene, first, UP, 2), report(scene, first, DOWN), report(scene, second, DOWN)) == 2
    assert await scene.state(T) is StreamState.SEALED


async def test_a_young_segment_is_neither_split_nor_marked(scene: Scene) -> None:
    await make(scene, 2)
    one = scene.first
    careful = AutoScale(one.streams, one.segments, one.scale, scene.world.clock, AutoScaleLimits(cooldown_ms=60_000))
    (first, _) = (await epoch(scene)).segment_ids
    for direction in (UP, DOWN):
        await scene.run(careful.handle(report(scene, first, direction, 2)))
    assert (len((await epoch(scene)).segments), await marks(scene)) == (2, {})
    await scene.world.clock.pass_time(60)
    await scene.run(careful.handle(report(scene, first, UP, 2)))
    await scene.world.clock.pass_time(5)
    assert len((await epoch(scene)).segments) == 3


async def test_a_segment_that_was_made_by_a_wrong_clock_is_split(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is on record from a version that took the time from clients."""
    clock, one = scene.world.clock, scene.first
    wall_ms, tomorrow_ms = clock.wall_ms, clock.wall_ms() + 24 * 3_600_000
    monkeypatch.setattr(clock, "wall_ms", lambda: tomorrow_ms)
    await make(scene)
    monkeypatch.setattr(clock, "wall_ms", wall_ms)
    careful = AutoScale(one.streams, one.segments, one.scale, clock, AutoScaleLimits(cooldown_ms=60_000))
    await scene.run(careful.handle(report(scene, 0, UP, 2)))
    await clock.pass_time(5)
    assert len((await epoch(scene)).segments) == 2


async def test_a_cold_segment_waits_for_its_neighbour(scene: Scene) -> None:
    await make(scene, 4)
    a, b, c, d = (await epoch(scene)).segment_ids
    assert await told(scene, report(scene, a, DOWN), report(scene, c, DOWN)) == 4
    assert set(await marks(scene)) == {a, c}
    assert await told(scene, report(scene, b, DOWN)) == 2
    assert [found.segment_id for found in (await epoch(scene)).segments][1] == d


async def test_a_mark_ends_after_its_time(scene: Scene) -> None:
    await make(scene, 2)
    a, b = (await epoch(scene)).segment_ids
    assert await told(scene, report(scene, a, DOWN)) == 2
    await scene.world.clock.pass_time(VALID_MS / 1000)
    assert await told(scene, report(scene, b, DOWN)) == 2
    assert await told(scene, report(scene, a, DOWN)) == 1


async def test_a_mark_of_a_store_whose_clock_is_ahead_ends_after_its_time_too(scene: Scene) -> None:
    await make(scene, 3)
    a, b, c = (await epoch(scene)).segment_ids
    assert await told(scene, report(scene, c, DOWN), report(scene, a, DOWN, age_ms=-1_000 * VALID_MS)) == 3
    assert set(await marks(scene)) == {a, c}
    await scene.world.clock.pass_time(VALID_MS / 1000)
    assert await told(scene, report(scene, b, DOWN)) == 3
    assert set(await marks(scene)) == {b}


async def test_a_segment_that_is_hot_is_cold_no_more(scene: Scene) -> None:
    await make(scene, 3)
    a, b, _ = (await epoch(scene)).segment_ids
    assert await told(scene, report(scene, a, DOWN, silent=True), report(scene, a, UP, 2)) == 4
    assert await marks(scene) == {}
    assert await told(scene, report(scene, b, DOWN)) == 4


async def test_a_silent_mark_holds_until_there_is_traffic(scene: Scene) -> None:
    await make(scene, 3)
    a, b, c = (await epoch(scene)).segment_ids
    assert await told(scene, report(scene, a, DOWN, silent=True), report(scene, c, DOWN, silent=True)) == 3
    await scene.world.clock.pass_time(10 * VALID_MS / 1000)
    scene.world.segments.segments[segment_name(S, T, c)].last_modified_ms = scene.world.clock.wall_ms()
    assert await told(scene, report(scene, b, DOWN)) == 2
    assert c in (await epoch(scene)).segment_ids
    assert c not in await marks(scene)


async def test_the_minimum_stays(scene: Scene) -> None:
    await make(scene, 4, minimum=3)
    for segment in (await epoch(scene)).segment_ids:
        assert await told(scene, report(scene, segment, DOWN, silent=True)) >= 3
    for segment in (await epoch(scene)).segment_ids:
        assert await told(scene, report(scene, segment, DOWN, silent=True)) == 3


async def test_a_report_waits_while_another_scale_is_under_way(scene: Scene) -> None:
    await make(scene, 2)
    a, b = (await epoch(scene)).segment_ids
    await scene.world.move_state(S, T, StreamState.COMMITTING_TRANSACTIONS)
    await scene.run(scene.first.auto_scale.handle(report(scene, a, UP, 2)))
    with pytest.raises(Postpone):
        await scene.run(scene.second.auto_scale.handle(report(scene, b, UP, 2)))
    await scene.world.move_state(S, T, StreamState.ACTIVE)
    await scene.world.clock.pass_time(10)
    assert await told(scene, report(scene, b, UP, 2)) == 4


@pytest.mark.parametrize("seed", range(20))
async def test_random_reports_at_two_controllers(seed: int) -> None:
    """Duplicates, stale ids and races: the epochs stay whole, between the minimum and what splits can make."""
    random = Random(seed)
    scene = await scene_of_two(seed=seed)
    minimum = random.choice((1, 2, 3))
    await make(scene, minimum, minimum=minimum, factor=3)
    seen = set((await epoch(scene)).segment_ids)

    async def handle(event: AutoScaleEvent) -> None:
        one = random.choice((scene.first, scene.second))
        for _ in range(30):
            try:
                return await one.auto_scale.handle(event)
            except Postpone:
                await scene.world.clock.sleep(0.3)

    for _ in range(25):
        current = await epoch(scene)
        seen |= set(current.segment_ids)
        direction = UP if random.random() < (0.7 if len(current.segments) < 8 else 0.1) else DOWN
        targets = random.sample(sorted(seen), min(len(seen), random.randint(1, 4)))
        if random.random() < 0.7:
            targets = random.sample(current.segment_ids, min(len(current.segments), 3))
        events = [report(scene, item, direction, 3, silent=random.random() < 0.3) for item in targets]
        await scene.run(asyncio.gather(*(handle(event) for event in (*events, *events[:1]))))
        if random.random() < 0.3:
            await scene.world.clock.pass_time(random.random() * 5)
        assert len((await epoch(scene)).segments) >= minimum
    await scene.world.clock.pass_time(30)
    final = await epoch(scene)
    assert final.splits > 0 and final.merges > 0
    assert len(await marks(scene)) <= 30
    assert await scene.state(T) is StreamState.ACTIVE
    assert await requests_left(scene.world.store) == 0
    await audit_streams(scene.world.streams, scene.world.segments)
    await scene.world.close()
