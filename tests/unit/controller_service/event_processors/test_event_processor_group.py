"""Runs groups of several instances over a stream in memory, with handlers that fail, hang, postpone and die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field

import pytest

from controller_service.event_processors import event_processor_group
from controller_service.event_processors.event_processor import Concurrency, Handling
from controller_service.event_processors.event_processor_group import EventProcessorGroup
from controller_service.queue.request_queue import Postpone
from pravega_common.errors import DataCorruption, InvalidArgument, Unavailable, UnsupportedOperation
from pravega_common.runtime import failpoints
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.event_source import InMemoryEventStream

STEP_S = 0.05


@dataclass
class FakeProcessor:
    """Events are ``key:text``; ``acts`` says what happens to a text instead of being handled."""

    concurrency: Concurrency = Concurrency.PER_KEY
    handled: list[str] = field(default_factory=list)
    acts: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    merges: bool = False
    running: set[str] = field(default_factory=set)

    def decode(self, data: memoryview) -> str:
        text = bytes(data).decode()
        if text.startswith("damaged"):
            raise DataCorruption(text)
        if text.startswith("unknown"):
            raise UnsupportedOperation(text)
        return text

    def key_of(self, event: str) -> str:
        return event.partition(":")[0]

    def merge_key(self, event: str) -> Hashable | None:
        return self.key_of(event) if self.merges else None

    async def handle(self, event: str) -> Handling:
        self.running.add(event)
        try:
            act = self.acts.get(event)
            if act is not None:
                await act()
        finally:
            self.running.discard(event)
        self.handled.append(event)
        return Handling.DONE


@dataclass
class GroupWorld:
    stream: InMemoryEventStream = field(default_factory=InMemoryEventStream)
    clock: ManualClock = field(default_factory=ManualClock)
    live: set[str] = field(default_factory=set)
    groups: list[EventProcessorGroup[str]] = field(default_factory=list)

    async def live_readers(self) -> set[str]:
        return set(self.live)

    async def start(self, name: str, processor: FakeProcessor) -> EventProcessorGroup[str]:
        self.live.add(name)
        group = EventProcessorGroup(name, self.stream.source(name), processor, self.live_readers, self.clock)
        self.groups.append(group)
        await group.start()
        return group

    def write(self, *events: str) -> None:
        for event in events:
            self.stream.append(event.partition(":")[0], event.encode())

    async def run(self) -> None:
        while True:
            await self.clock.advance(STEP_S)
            # Lets everything run that became due; the time itself is the clock's.
            await asyncio.sleep(0.001)


@pytest.fixture
async def world() -> AsyncIterator[GroupWorld]:
    made = GroupWorld()
    running = asyncio.ensure_future(made.run())
    yield made
    for group in made.groups:
        await group.stop()
    running.cancel()


def hanging(gate: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        await gate.wait()

    return act


def failing(error: Exception, times: int = 1_000_000) -> Callable[[], Awaitable[None]]:
    left = [times]

    async def act() -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise error

    return act


async def handled(processor: FakeProcessor, *events: str) -> None:
    await eventually(lambda: set(events) <= set(processor.handled), f"the handling of {events}")


async def test_events_are_handled_in_order_per_key(world: GroupWorld) -> None:
    processor = FakeProcessor()
    written = [f"k{number % 3}:{number}" for number in range(30)]
    world.write(*written)
    group = await world.start("a", processor)
    await handled(processor, *written)
    for key in ("k0", "k1", "k2"):
        mine = [event for event in written if event.startswith(key)]
        assert [event for event in processor.handled if event.startswith(key)] == mine
    assert group.details()["handled"] == 30
    assert group.details()["online"]


async def test_a_slow_event_holds_only_its_own_key(world: GroupWorld) -> None:
    world.stream = InMemoryEventStream(segments=1)
    gate = asyncio.Event()
    processor = FakeProcessor(acts={"a:1": hanging(gate)})
    world.write("a:1", "a:2", "b:1")
    await world.start("a", processor)
    await handled(processor, "b:1")
    assert processor.handled == ["b:1"]
    assert processor.running == {"a:1"}
    gate.set()
    await handled(processor, "a:1", "a:2")
    assert processor.handled == ["b:1", "a:1", "a:2"]


@pytest.mark.parametrize("concurrency", list(Concurrency))
async def test_a_slow_event_holds_what_comes_behind_its_slice(world: GroupWorld, concurrency: Concurrency) -> None:
    """Of every key: one reason why commits and aborts are no events (controller_service/queue/README.md)."""
    world.stream = InMemoryEventStream(segments=1)
    gate = asyncio.Event()
    processor = FakeProcessor(concurrency, acts={"slow:1": hanging(gate)})
    world.write("slow:1")
    await world.start("one", processor)
    await eventually(lambda: processor.running == {"slow:1"})
    world.write("other:1")
    waited_until_s = world.clock.monotonic_s() + 60
    await eventually(lambda: world.clock.monotonic_s() > waited_until_s, "a minute of the clock")
    assert processor.handled == []
    gate.set()
    await handled(processor, "other:1")
    assert processor.handled == ["slow:1", "other:1"]


async def test_no_more_events_of_a_slice_are_taken_than_the_limit(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_processor_group, "events_per_slice_max", 2)
    world.stream = InMemoryEventStream(segments=1)
    gate = asyncio.Event()
    processor = FakeProcessor(acts={"a:1": hanging(gate)})
    world.write("a:1", "b:1", "c:1")
    await world.start("a", processor)
    await handled(processor, "b:1")
    gate.set()
    await handled(processor, "c:1")
    assert processor.handled == ["b:1", "a:1", "c:1"]


async def test_a_handler_that_fails_for_a_while_is_repeated_in_place(world: GroupWorld) -> None:
    processor = FakeProcessor(acts={"a:1": failing(ZeroDivisionError("a bug"), times=2)})
    world.write("a:1", "a:2")
    group = await world.start("a", processor)
    await handled(processor, "a:1", "a:2")
    assert processor.handled == ["a:1", "a:2"]
    assert (group.counts.failures, group.counts.postponed) == (2, 0)


async def test_a_handler_that_always_fails_stops_nobody(world: GroupWorld) -> None:
    world.stream = InMemoryEventStream(segments=1)
    processor = FakeProcessor(acts={"a:bad": failing(ZeroDivisionError("a bug"))})
    world.write("a:bad", "a:1", "b:1")
    group = await world.start("a", processor)
    await handled(processor, "a:1", "b:1")
    await eventually(lambda: group.counts.postponed >= 3)
    world.write("a:2")
    await handled(processor, "a:2")
    assert group.counts.failures >= event_processor_group.attempts_max * 3


async def test_a_stream_of_failing_events_alone_turns_slowly(world: GroupWorld) -> None:
    processor = FakeProcessor(acts={"a:bad": failing(Postpone("never"))})
    world.write("a:bad")
    group = await world.start("a", processor)
    await eventually(lambda: group.counts.postponed >= 10)
    began_s, before = world.clock.monotonic_s(), group.counts.postponed
    await eventually(lambda: group.counts.postponed >= before + 10)
    took_s = world.clock.monotonic_s() - began_s
    assert took_s >= 9 * event_processor_group.postpone_pause_max_s


async def test_a_postponed_event_goes_behind_the_others(world: GroupWorld) -> None:
    processor = FakeProcessor(acts={"a:1": failing(Postpone("the stream is busy"), times=1)})
    world.write("a:1", "a:2", "a:3")
    group = await world.start("a", processor)
    await handled(processor, "a:1")
    assert processor.handled == ["a:2", "a:3", "a:1"]
    assert (group.counts.postponed, group.counts.failures) == (1, 0)


async def test_a_refused_event_ends(world: GroupWorld) -> None:
    processor = FakeProcessor(acts={"a:1": failing(InvalidArgument("no such thing"))})
    world.write("a:1", "a:2")
    group = await world.start("a", processor)
    await handled(processor, "a:2")
    assert (group.counts.refused, group.counts.postponed) == (1, 0)


async def test_damaged_events_are_left_out_and_unknown_ones_kept(world: GroupWorld) -> None:
    processor = FakeProcessor()
    world.write("damaged:1", "unknown:1", "a:1")
    group = await world.start("a", processor)
    await handled(processor, "a:1")
    await eventually(lambda: group.counts.postponed >= 1)
    await eventually(lambda: [event for _, event in world.stream.written].count(b"unknown:1") >= 2)
    assert processor.handled == ["a:1"]
    assert group.counts.damaged == 1
    assert [event for _, event in world.stream.written].count(b"damaged:1") == 1


async def test_waiting_events_of_one_piece_of_work_are_merged(world: GroupWorld) -> None:
    processor = FakeProcessor(merges=True)
    world.write("a:1", "b:1", "a:2", "a:3")
    group = await world.start("a", processor)
    await handled(processor, "a:3", "b:1")
    await eventually(lambda: group.counts.merged == 2)
    assert sorted(processor.handled) == ["a:3", "b:1"]


async def test_a_handler_that_hangs_is_cut_off_and_tried_again(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_processor_group, "handle_time_max_s", 0.02)
    attempts = iter(range(10))

    async def hang_once() -> None:
        if next(attempts) == 0:
            await asyncio.Event().wait()

    processor = FakeProcessor(acts={"a:1": hang_once})
    world.write("a:1")
    group = await world.start("a", processor)
    await handled(processor, "a:1")
    assert group.counts.failures == 1


async def test_another_instance_goes_on_behind_the_last_event_that_was_handled(world: GroupWorld) -> None:
    world.stream = InMemoryEventStream(segments=1)
    never = asyncio.Event()
    first = FakeProcessor(acts={"a:2": hanging(never)})
    world.write("a:1", "a:2", "a:3")
    stopped = await world.start("a", first)
    await handled(first, "a:1")
    await eventually(lambda: first.running == {"a:2"})
    await stopped.stop()
    second = FakeProcessor()
    await world.start("b", second)
    await handled(second, "a:2", "a:3")
    assert (first.handled, second.handled) == (["a:1"], ["a:2", "a:3"])


async def test_the_events_of_an_instance_without_a_lease_are_handled_elsewhere(world: GroupWorld) -> None:
    never = asyncio.Event()
    dead = FakeProcessor(acts={f"k{n}:1": hanging(never) for n in range(8)})
    written = [f"k{number}:{turn}" for turn in (1, 2) for number in range(8)]
    world.write(*written)
    await world.start("a", dead)
    await eventually(lambda: len(dead.running) == 8)
    heir = FakeProcessor()
    await world.start("b", heir)
    assert dead.handled == heir.handled == []
    world.live.discard("a")
    await handled(heir, *written)
    for number in range(8):
        mine = [event for event in heir.handled if event.startswith(f"k{number}:")]
        assert mine == [f"k{number}:1", f"k{number}:2"]
    assert dead.handled == []


async def test_instances_with_a_lease_leave_each_other_alone(world: GroupWorld) -> None:
    groups = [await world.start(name, FakeProcessor()) for name in ("a", "b")]
    await eventually(lambda: set(world.stream.online) == {"a", "b"})
    began_s = world.clock.monotonic_s()
    await eventually(lambda: world.clock.monotonic_s() > began_s + 3 * event_processor_group.take_over_period_s)
    assert [group.counts.rejoined for group in groups] == [0, 0]


async def test_an_instance_without_a_lease_takes_nobody_for_dead(world: GroupWorld) -> None:
    """Its own view may be the wrong one: an oracle that lost its members makes nobody take over."""
    groups = [await world.start(name, FakeProcessor()) for name in ("a", "b")]
    await eventually(lambda: set(world.stream.online) == {"a", "b"})
    world.live.clear()
    began_s = world.clock.monotonic_s()
    await eventually(lambda: world.clock.monotonic_s() > began_s + 3 * event_processor_group.take_over_period_s)
    assert [group.counts.rejoined for group in groups] == [0, 0]


async def test_a_live_instance_that_was_taken_out_joins_again(world: GroupWorld) -> None:
    processor = FakeProcessor()
    group = await world.start("a", processor)
    await eventually(lambda: group.is_online)
    world.stream.remove("a")
    world.write("a:1")
    await handled(processor, "a:1")
    assert group.counts.rejoined == 1


async def test_handlers_go_on_while_the_stream_cannot_be_read(world: GroupWorld) -> None:
    world.stream = InMemoryEventStream(segments=1)
    gate = asyncio.Event()
    processor = FakeProcessor(acts={"a:1": hanging(gate)})
    world.write("a:1", "a:2")
    group = await world.start("a", processor)
    await eventually(lambda: processor.running == {"a:1"})
    world.stream.fault = lambda operation: Unavailable(operation)
    began_s = world.clock.monotonic_s()
    await eventually(lambda: world.clock.monotonic_s() > began_s + 5)
    assert "Unavailable" in group.details()["problem"]
    gate.set()
    await eventually(lambda: "a:1" in processor.handled and not processor.running)
    assert group.counts.rejoined == 0
    world.stream.fault = lambda operation: None
    world.write("a:3")
    await handled(processor, "a:2", "a:3")
    assert group.details()["problem"] == ""


async def test_a_postponed_event_is_written_however_often_that_fails(world: GroupWorld) -> None:
    failures = iter([Unavailable("write")] * 5)
    world.stream.fault = lambda operation: next(failures, None) if operation == "write" else None
    processor = FakeProcessor(acts={"a:1": failing(Postpone("the stream is busy"), times=1)})
    world.write("a:1")
    await world.start("a", processor)
    await handled(processor, "a:1")
    assert processor.handled == ["a:1"]


async def test_an_instance_that_cannot_join_at_first_comes_online_later(world: GroupWorld) -> None:
    world.stream.fault = lambda operation: Unavailable(operation)
    processor = FakeProcessor()
    group = await world.start("a", processor)
    assert group.is_running, "the controller does not wait for it"
    world.write("a:1")
    await eventually(lambda: group.counts.rejoined >= 3)
    assert not group.is_online
    world.stream.fault = lambda operation: None
    await handled(processor, "a:1")


@pytest.mark.parametrize("step", sorted(name for name in failpoints.KNOWN if name.startswith("events.")))
async def test_an_event_ends_whatever_the_step_at_which_its_instance_fails(world: GroupWorld, step: str) -> None:
    processor = FakeProcessor(acts={"a:1": failing(Postpone("the stream is busy"), times=1)})
    failpoints.arm(step, failpoints.raise_on_hit(step))
    world.write("a:1", "a:2", "b:1", "b:2")
    group = await world.start("a", processor)
    try:
        await handled(processor, "a:1", "a:2", "b:1", "b:2")
        await eventually(lambda: group.counts.rejoined == 1, "the failure")
        await eventually(lambda: all(segment.recorded == len(segment.data) for segment in world.stream.segments))
    finally:
        failpoints.disarm_all()
    assert processor.handled.index("b:1") < processor.handled.index("b:2")


async def test_what_was_handled_is_truncated_again_and_again(world: GroupWorld) -> None:
    processor = FakeProcessor()
    await world.start("a", processor)
    for turn in range(3):
        world.write(f"a:{turn}", f"b:{turn}")
        await handled(processor, f"a:{turn}", f"b:{turn}")
        await eventually(lambda: all(segment.start == len(segment.data) for segment in world.stream.segments))
