"""The watched segments of a container: which they are, and when they are reported."""

from __future__ import annotations

from pravega_common.model.auto_scale_event import ScaleDirection
from pravega_common.model.scaling import ScaleType
from segment_service.contracts.attributes import EVENT_COUNT, SCALE_POLICY_RATE, SCALE_POLICY_TYPE
from tests.unit.segment_service.traffic.world import NAME, TrafficWorld, policy


def test_a_hot_segment_is_reported_with_its_splits_and_then_muted() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create()
    events = world.run(segment, 450, 1_180)
    assert [(event.scope, event.stream, event.segment_id) for event in events] == [("scope", "stream", 0)]
    assert (events[0].direction, events[0].splits, events[0].is_silent) == (ScaleDirection.UP, 4, False)
    assert len(world.run(segment, 450, 60)) == 1


def test_a_report_that_was_not_written_comes_again() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create()
    world.run(segment, 450, 595)
    reported = []
    for _ in range(5):
        world.append(segment, 2_250)
        reported.append(world.tick(written=False))
    assert [len(events) for events in reported] == [0, 0, 1, 1, 1]
    assert reported[3][0].request_id != reported[2][0].request_id


def test_a_lukewarm_segment_is_not_reported() -> None:
    world = TrafficWorld()
    world.watch()
    assert world.run(world.create(), 80, 6_000) == []


def test_a_cold_segment_is_reported_once_in_the_time_of_mute() -> None:
    world = TrafficWorld()
    world.watch()
    events = world.run(world.create(), 10, 1_800)
    assert [(event.direction, event.splits, event.is_silent) for event in events] == [(ScaleDirection.DOWN, 0, False)]


def test_a_segment_that_never_had_traffic_is_reported_silently_and_forgotten() -> None:
    world = TrafficWorld()
    watch = world.watch()
    segment = world.create()
    events = world.run(segment, 0, 2_400)
    assert [(event.direction, event.is_silent) for event in events] == [(ScaleDirection.DOWN, True)]
    assert len(watch) == 0
    world.append(segment, 1)
    world.tick()
    assert len(watch) == 1


def test_a_silent_report_that_was_not_written_keeps_the_segment() -> None:
    world = TrafficWorld()
    watch = world.watch()
    segment = world.create()
    assert world.run(segment, 0, 1_205) == []
    for _ in range(3):
        assert [event.is_silent for event in world.tick(written=False)] == [True]
    assert len(watch) == 1


def test_a_segment_that_left_memory_is_watched_until_it_is_reported() -> None:
    world = TrafficWorld()
    watch = world.watch()
    segment = world.create()
    world.run(segment, 10, 30)
    world.leave_memory(segment)
    assert [event.is_silent for event in world.run(segment, 0, 2_400)][-1] is True
    assert len(watch) == 0


def test_segments_without_a_rate_policy_are_never_noted() -> None:
    world = TrafficWorld()
    watch = world.watch()
    for name, attributes in (
        ("scope/fixed/0.#epoch.0", policy(0, ScaleType.FIXED)),
        ("scope/none/0.#epoch.0", {}),
        ("_system/stream/0.#epoch.0", policy()),
        ("scope/rate-of-nothing/0.#epoch.0", policy(0)),
    ):
        world.append(world.create(name, attributes), 1_000_000)
    world.tick()
    assert len(watch) == 0
    assert world.metadata.traffic.noted() == []


def test_a_name_that_no_stream_has_is_not_watched() -> None:
    world = TrafficWorld()
    watch = world.watch()
    world.create("scope/stream/9999999999.#epoch.0")
    world.create(f"{'s' * 300}/stream/0.#epoch.0")
    world.tick()
    assert len(watch) == 0


def test_a_new_policy_counts_from_the_next_tick_on() -> None:
    world = TrafficWorld()
    watch = world.watch()
    segment = world.create(attributes=policy(0, ScaleType.FIXED))
    world.run(segment, 1_000, 1_200)
    world.update(segment, policy(100))
    world.tick()
    assert len(watch) == 1
    assert len(world.run(segment, 1_000, 605)) == 1
    world.update(segment, {SCALE_POLICY_TYPE: int(ScaleType.FIXED)})
    assert world.run(segment, 1_000, 1_200) == []
    assert len(watch) == 0


def test_another_target_rate_keeps_what_was_seen() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create()
    assert world.run(segment, 80, 1_200) == []
    world.update(segment, {SCALE_POLICY_RATE: 20})
    assert [event.splits for event in world.run(segment, 80, 5)] == [4]


def test_a_policy_by_bytes_counts_kilobytes() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create(attributes=policy(10, ScaleType.KILOBYTES_PER_SECOND))
    assert [event.splits for event in world.run(segment, 1, 700, length=5 * 35 * 1024)] == [3]


def test_sealed_and_deleted_segments_are_watched_no_more() -> None:
    world = TrafficWorld()
    watch = world.watch()
    sealed, deleted = world.create(), world.create("scope/stream/1.#epoch.0")
    world.tick()
    assert len(watch) == 2
    world.seal(sealed)
    world.delete(deleted)
    world.tick()
    assert len(watch) == 0


def test_a_segment_that_grows_all_the_time_is_found_by_a_later_watch() -> None:
    """The boundary tracker meets it as one whose records are never complete."""
    world = TrafficWorld()
    segment = world.create()
    world.append(segment, 1)
    watch = world.watch()
    watch.stop()
    world.metadata.traffic.is_on = True
    world.append(segment, 1)
    assert world.metadata.traffic.noted() == []
    world.metadata.boundaries.written(world.metadata.segments[segment], 500)
    assert world.metadata.traffic.noted() == [segment]


def test_an_append_is_noted_once_for_each_round_of_the_index() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create()
    world.metadata.traffic.clear()
    calls = []
    world.metadata.boundaries.on_traffic = lambda found: calls.append(found.segment_id)
    for _ in range(1_000):
        world.append(segment, 1, length=10)
    assert calls == [segment]
    world.index_written(segment)
    world.append(segment, 1, length=10)
    assert calls == [segment, segment]


def test_a_tick_looks_at_watched_segments_only() -> None:
    world = TrafficWorld()
    watch = world.watch()
    for number in range(200):
        world.create(f"scope/fixed/{number}.#epoch.0", {})
    world.create()
    world.tick()
    assert len(watch) == 1


def test_what_a_recovery_replays_is_no_traffic() -> None:
    world = TrafficWorld()
    segment = world.create()
    for _ in range(100):
        world.append(segment, 100_000)
    world.watch()
    assert world.run(segment, 50, 1_000) == []


def test_a_merge_counts_over_the_life_of_its_transaction() -> None:
    """A batch a minute of 4,500 events is 75 a second: below the target, though each comes at once."""
    world = TrafficWorld()
    world.watch()
    segment = world.create()
    events = []
    for tick in range(720):
        if tick % 12 == 0:
            world.merge(segment, 4_500, 30_000, life_ms=60_000)
        events += world.tick()
    assert events == []


def test_merges_make_a_segment_hot_as_appends_do() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create()
    events = []
    for tick in range(200):
        if tick % 12 == 0:
            world.merge(segment, 24_000, 240_000, life_ms=60_000)
        events += world.tick()
    assert [event.direction for event in events] == [ScaleDirection.UP]
    assert events[0].splits in (3, 4)


def test_a_merge_in_the_middle_of_a_tick_is_counted_once() -> None:
    """Looks of one tick may lie apart: whatever came is counted by the look that sees its bytes."""
    world = TrafficWorld()
    watch = world.watch()
    segment = world.create(attributes=policy(100, ScaleType.KILOBYTES_PER_SECOND))
    world.tick()
    for _ in range(400):
        world.now_s += 5
        looks = watch.begin_tick(world.now_s)
        world.merge(segment, 1, 90 * 5 * 1024, life_ms=0)
        assert [watch.look(item, 0) for item in looks] == [None]


def test_bytes_of_merges_and_appends_are_counted_once() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create(attributes=policy(100, ScaleType.KILOBYTES_PER_SECOND))
    for _ in range(400):
        world.append(segment, 1, length=45 * 5 * 1024)
        world.merge(segment, 1, 45 * 5 * 1024, life_ms=0)
        assert world.tick() == []


def test_a_count_of_events_that_a_client_sets_back_is_no_traffic() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create()
    world.run(segment, 80, 1_200)
    world.update(segment, {EVENT_COUNT: 0})
    assert world.run(segment, 80, 600) == []


def test_reports_name_the_segment_by_its_id() -> None:
    world = TrafficWorld()
    world.watch()
    segment = world.create(NAME.replace("0.#epoch.0", "7.#epoch.3"))
    (event,) = world.run(segment, 450, 620)
    assert event.segment_id == 3 << 32 | 7
    assert event.request_segment in ("_system/_requeststream/0.#epoch.0", "_system/_requeststream/1.#epoch.0")
