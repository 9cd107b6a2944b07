"""Two live controllers work on one stream at the same time: commits with slow merges, and scales in between."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import pytest

from controller_service.store.holds import free, take
from controller_service.store.records import StreamState
from controller_service.transactions.commit_holds import CommitRun
from pravega_common.errors import DataCorruption, PravegaError
from pravega_common.model.transactions import TransactionState
from tests.support.fakes.segment_access import OneByOne
from tests.support.transaction_world import CrashSwitch, Instance, World

S, T = "scope", "stream"
pytestmark = pytest.mark.timeout(600)

seeds = range(int(os.environ.get("TWO_CONTROLLER_RUNS", "60")))
"""One jittered history each; the environment variable is for longer runs by hand."""


class SlowMerges(CrashSwitch):
    """Operations take some turns, and merges take long enough for another controller to do anything meanwhile."""

    def __init__(self, world: World, random: Random) -> None:
        super().__init__()
        self._world = world
        self._random = random

    async def call(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(self._random.randrange(6)):
            await asyncio.sleep(0)
        if work.__name__ in ("merge_batch", "info", "seal_segments") or self._random.random() < 0.05:
            await self._world.clock.sleep(self._random.random() * 0.3)
        return await super().call(work, *args, **kwargs)


async def world_of_two(seed: int) -> tuple[World, list[Instance]]:
    world = World(seed)
    await world.create_stream(S, T)
    random = Random(seed)
    return world, [await world.instance(SlowMerges(world, random)) for _ in range(2)]


@pytest.mark.parametrize("seed", seeds)
async def test_every_committed_byte_is_readable(seed: int) -> None:
    world, controllers = await world_of_two(seed)
    random = Random(seed + 10_000)
    expected: list[str] = []

    async def client(name: int) -> None:
        """Commits through one controller and then the other, as clients that know both do."""
        for number in range(6):
            label = f"{name}.{number}"
            one = random.choice(controllers)
            created = await one.transactions.create(S, T, 30_000)
            world.write(S, T, created, label)
            await world.clock.sleep(random.random() * 0.5)
            assert await random.choice(controllers).transactions.commit(S, T, created.id)
            expected.extend([label] * len(created.segments))

    async def scaler() -> None:
        for _ in range(4):
            await world.clock.sleep(random.random())
            await world.split(random.choice(controllers), S, T)

    await world.run(_all(client(0), client(1), client(2), scaler()), 120)
    await world.clock.pass_time(120)
    assert [one.transactions.blocked for one in controllers] == [{}, {}]
    assert world.segments.transaction_segments() == []
    assert sorted(await world.readable(S, T)) == sorted(expected)
    context = await world.streams.open(S, T)
    assert await context.state() is StreamState.ACTIVE
    await world.close()


async def _all(*work: Any) -> None:
    await asyncio.gather(*work)


async def test_the_state_is_not_freed_under_the_round_of_another_controller() -> None:
    """One controller ends its commits while the other begins a round; then a scale comes, and is slow."""
    world = World()
    await world.create_stream(S, T)
    ending, beginning, scaling = [await world.instance() for _ in range(3)]
    leaves, merges = Gate(), Gate()
    holds = ending.transactions._commits._holds
    holds.leave = leaves.before(holds.leave)  # type: ignore[method-assign]
    first = await world.begin(ending, S, T, "a")
    second = await world.begin(beginning, S, T, "b")
    assert await world.run(ending.transactions.commit(S, T, first.id))
    await world.run(leaves.reached.wait(), 10)
    beginning.transactions._commits._merges._segments = Slowed(world, beginning.segments, "merge_batch", merges)
    assert await world.run(beginning.transactions.commit(S, T, second.id))
    await world.run(merges.reached.wait(), 10)
    leaves.open.set()
    scaling.scale._access = Slowed(world, scaling.segments, "info")
    await world.run(world.split(scaling, S, T))
    await world.clock.pass_time(1)
    merges.open.set()
    await world.clock.pass_time(60)
    assert [one.transactions.blocked for one in world.instances] == [{}, {}, {}]
    for created in (first, second):
        state = await world.run(ending.transactions.transaction_state(S, T, created.id))
        assert state is TransactionState.COMMITTED
    assert sorted(await world.readable(S, T)) == ["a", "a", "b", "b"]
    context = await world.streams.open(S, T)
    assert ((await context.current_epoch()).epoch, await context.state()) == (1, StreamState.ACTIVE)
    await world.close()


async def test_nothing_is_measured_while_a_merge_is_in_flight(world: World) -> None:
    """One target refuses at once, since a scale got through; the merge into another one lands later."""
    one = await world.instance()
    created = await world.begin(one, S, T, "a")
    one.die_at("transaction_commit.round_recorded")
    await world.run(one.transactions.commit(S, T, created.id))
    await world.clock.pass_time(5)
    assert one.switch.crashed
    await world.run(one.kill())
    world.live.add(one.name)
    # As an instance of a former version does, which did not mark its rounds.
    await world.move_state(S, T, StreamState.ACTIVE)
    other = world.add_instance()
    await world.run(other.queue.start())
    await world.run(world.split(other, S, T))
    await world.clock.pass_time(5)
    assert world.segments.segments[f"{S}/{T}/0.#epoch.0"].is_sealed
    workflow = other.transactions._commits
    slow = workflow._merges._segments = Slowed(world, other.segments, "merge_batch")
    slow.delays_s = {f"{S}/{T}/0.#epoch.0": 0, f"{S}/{T}/1.#epoch.0": 3}
    world.live.discard(one.name)
    await world.run(other.transactions.start())
    await world.clock.pass_time(60)
    assert other.transactions.blocked == {}
    state = await world.run(other.transactions.transaction_state(S, T, created.id))
    assert state is TransactionState.COMMITTED
    assert await world.readable(S, T) == ["a", "a"]


class Gate:
    """A place where work waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    def before(self, work: Any) -> Any:
        async def gated(*args: Any, **kwargs: Any) -> Any:
            self.reached.set()
            await self.open.wait()
            return await work(*args, **kwargs)

        return gated


class Slowed(OneByOne):
    """Segment access of which one call waits for a gate, or takes its time."""

    def __init__(self, world: World, inner: Any, name: str, gate: Gate | None = None) -> None:
        self._world, self._inner, self._name, self._gate = world, inner, name, gate
        self.delays_s: dict[str, float] = {}
        """By segment; five seconds for others."""

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name != self._name:
            return call
        return self._late(call) if self._gate is None else self._gate.before(call)

    def _late(self, call: Any) -> Any:
        async def late(segment: str, *args: Any) -> Any:
            await self._world.clock.sleep(self.delays_s.get(segment, 5))
            return await call(segment, *args)

        return late


async def test_a_run_frees_only_the_state_that_it_took_last(world: World) -> None:
    state = StreamState.COMMITTING_TRANSACTIONS
    context, first = await take(world.streams, S, T, state, "")
    mark = (await context.state_record()).round
    context, second = await take(world.streams, S, T, state, "")
    assert (await context.state_record()).round != mark
    await free(world.streams, first)
    assert await (await world.streams.open(S, T)).state() is state
    await free(world.streams, second)
    assert await (await world.streams.open(S, T)).state() is StreamState.ACTIVE


async def test_what_a_dead_run_holds_is_freed_by_the_next(world: World) -> None:
    await take(world.streams, S, T, StreamState.COMMITTING_TRANSACTIONS, "")
    one = await world.instance()
    await world.run(one.transactions.scheduler.schedule_commit(S, T))
    await world.clock.pass_time(1)
    assert await (await world.streams.open(S, T)).state() is StreamState.ACTIVE


async def test_a_round_of_another_run_is_not_freed(world: World) -> None:
    """The second run finds the round that the first one is merging, takes the state, and has it taken from itself."""
    one = await world.instance()
    created = await world.begin(one, S, T, "a")
    one.die_at("transaction_commit.round_recorded")
    await world.run(one.transactions.commit(S, T, created.id))
    await world.clock.pass_time(5)
    assert one.switch.crashed
    await world.run(one.kill())
    other = world.add_instance()
    workflow = other.transactions._commits
    run = CommitRun(S, T)
    assert await world.run(workflow.run_round(run))
    await take(world.streams, S, T, StreamState.COMMITTING_TRANSACTIONS, "")
    assert not await world.run(workflow.run_round(run))
    assert await (await world.streams.open(S, T)).state() is StreamState.COMMITTING_TRANSACTIONS


async def test_an_epoch_on_record_that_differs_is_an_error_of_a_commit(world: World) -> None:
    one = await world.instance()
    created = await world.begin(one, S, T, "a")
    await world.scale_to_one(S, T)
    one.die_at("transaction_commit.duplicates_sealed")
    await world.run(one.transactions.commit(S, T, created.id))
    await world.clock.pass_time(5)
    assert one.switch.crashed
    await world.run(one.kill())
    await world.put_epoch(S, T, 2)
    other = await world.instance()
    await world.clock.pass_time(30)
    assert "epoch 2 of stream scope/stream is on record" in other.transactions.blocked[f"{S}/{T}"]
    state = await world.run(other.transactions.transaction_state(S, T, created.id))
    assert state is TransactionState.COMMITTING


async def test_an_epoch_on_record_that_differs_is_an_error_of_a_scale(world: World) -> None:
    one = await world.instance()
    await world.put_epoch(S, T, 1)
    errors: list[BaseException] = []
    handler = one.queue._handlers["scale_stream"]

    async def watching(*args: Any) -> None:
        try:
            await handler(*args)
        except PravegaError as error:
            errors.append(error)
            raise

    one.queue._handlers["scale_stream"] = watching
    await world.run(world.split(one, S, T))
    await world.clock.pass_time(5)
    assert errors and all(isinstance(error, DataCorruption) for error in errors)
    context = await world.streams.open(S, T)
    assert (await context.current_epoch()).epoch == 0
    # The state is free for whoever can settle it.
    assert not any(segment.is_sealed for segment in world.segments.segments.values())
