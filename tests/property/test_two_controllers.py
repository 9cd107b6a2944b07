"""Random histories of two controllers on one store: slow merges and scales, lost answers, calls that are cut off.

One stream is scaled, updated and committed to, and every committed event must be readable in the end; another one is
created, truncated, sealed and deleted beside it by two clients at once, with reader groups that subscribe to both, and
runs of retention. In histories of their own a key-value table is created and deleted by two clients.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from random import Random
from typing import Any

import pytest

from controller_service.buckets.retention_job import RetentionJob
from controller_service.errors import IllegalState
from controller_service.store.members import KeyValueTableRecord, ScopeMemberState, key_value_tables
from controller_service.store.records import StreamState
from pravega_common.errors import Outcome, PravegaError, Unavailable, UnknownOutcome
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import table_segment_name
from tests.support.stream_audit import audit_streams, requests_left
from tests.support.transaction_world import CrashSwitch, Instance, World
from tests.support.workflow_steps import GROUP_ID, TWO, S, group_config

KEPT, CHURNED = "kept", "churned"
POLICY = RetentionPolicy(RetentionType.TIME, 1 << 40)
found_earlier = (51, 57, 85, 100, 117, 134, 261, 378, 381, 533, 588, 612, 693, 961, 1289, 1552, 1714, 1754, 1816)
"""Histories that found something once."""
seeds = sorted({*range(int(os.environ.get("TWO_CONTROLLER_HISTORIES", "50"))), *found_earlier})
"""One history each; the environment variable is for longer runs by hand."""
fault_chance = 0.01
cut_off_chance = 0.1
attempts_max = 30
slow_calls = (
    "merge_batch",
    "info",
    "seal_segments",
    "create_segments",
    "create_table_segment",
    "delete_table_segment",
)
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_log")]


class Unsteady(CrashSwitch):
    """Operations take some turns, those on segments longer, and some fail or lose their answer."""

    def __init__(self, world: World, random: Random) -> None:
        super().__init__()
        self.fault_chance = 0.0
        self._world = world
        self._random = random

    async def call(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)
        if work.__name__ in slow_calls or self._random.random() < 0.05:
            await self._world.clock.sleep(self._random.random() * 0.4)
        if self._random.random() < self.fault_chance:
            raise Unavailable("nothing was done")
        result = await super().call(work, *args, **kwargs)
        if self._random.random() < self.fault_chance:
            raise UnknownOutcome("the answer was lost")
        return result


def _is_ending() -> bool:
    """Whether the test as a whole is cancelled, so that nothing is asked for any more."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class History:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.random = Random(f"history {seed}")
        self.controllers: list[Instance] = []
        self.committed: list[str] = []
        self.labels = 0

    async def prepare(self) -> None:
        world = self.world
        await world.streams.create_system_tables()
        await world.streams.create_scope(S)
        switches = [Unsteady(world, self.random) for _ in range(2)]
        self.controllers = [await world.instance(switch) for switch in switches]
        await world.run(self.any().create.create(S, KEPT, TWO))
        for switch in switches:
            switch.fault_chance = fault_chance

    def any(self) -> Instance:
        return self.random.choice(self.controllers)

    async def insist(self, call: Any) -> Any:
        """Make a call until it is answered, each time on a controller of chance; None for a refusal."""
        for _ in range(attempts_max):
            work = asyncio.ensure_future(call(self.any()))
            if self.random.random() < cut_off_chance:
                await self.world.clock.sleep(self.random.random())
                work.cancel()
            try:
                return await work
            except asyncio.CancelledError:
                if _is_ending():
                    raise
                continue
            except PravegaError as error:
                if error.outcome is Outcome.REJECTED:
                    return None
            await self.world.clock.sleep(0.05)
        raise AssertionError("no answer")

    async def pause(self, most_s: float) -> None:
        await self.world.clock.sleep(self.random.random() * most_s)

    # ---- clients -----------------------------------------------------------------------------------------------------

    async def commit_and_abort(self) -> None:
        for _ in range(6):
            self.labels += 1
            label = f"event-{self.labels}"
            created = await self.insist(lambda one: one.transactions.create(S, KEPT, 60_000))
            if created is None:
                continue
            self.world.write(S, KEPT, created, label)
            await self.pause(0.7)
            identifier = created.id
            if self.random.random() < 0.2:
                assert await self.insist(lambda one, it=identifier: one.transactions.abort(S, KEPT, it))
            else:
                assert await self.insist(lambda one, it=identifier: one.transactions.commit(S, KEPT, it))
                self.committed += [label] * len(created.segments)

    async def scale(self) -> None:
        for _ in range(4):
            await self.pause(1.0)
            await self.insist(lambda one: self.world.split(one, S, KEPT))

    async def update(self) -> None:
        for count in (3, 1, 2):
            await self.pause(2.0)
            policy = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, count, 2, count)
            new = StreamConfiguration(policy, POLICY if count > 1 else None, (f"tag-{count}",))
            await self.insist(lambda one, new=new: one.update.update(self.world.new_id(), S, KEPT, new))

    async def retain(self) -> None:
        """Runs of retention, which take streams without a policy out of the index."""
        for _ in range(8):
            await self.pause(1.0)
            await self.insist(self._run_retention)

    async def _run_retention(self, one: Instance) -> None:
        async def alone() -> set[str]:
            return {one.name}

        job = RetentionJob(one.streams, [one.retention.apply_to], one.name, alone, self.world.clock, 1_000)
        await job.run_once()

    async def churn(self) -> None:
        operations = [self._create, self._create, self._split, self._truncate, self._begin, self._seal, self._delete]
        for _ in range(12):
            await self.insist(self.random.choice(operations))

    async def group(self) -> None:
        for streams in ((KEPT,), (KEPT, CHURNED)):
            await self.insist(lambda one, s=streams: one.groups.create(S, "group", GROUP_ID, group_config(*s)))
            await self.insist(lambda one: one.groups.update(S, "group", GROUP_ID, 0, group_config(CHURNED)))
            await self.insist(lambda one: one.groups.delete(S, "group", GROUP_ID))

    def _create(self, one: Instance) -> Awaitable[object]:
        policy = POLICY if self.random.random() < 0.5 else None
        return one.create.create(S, CHURNED, StreamConfiguration(TWO.scaling, policy))

    def _split(self, one: Instance) -> Awaitable[object]:
        return self.world.split(one, S, CHURNED)

    async def _truncate(self, one: Instance) -> None:
        current = await (await one.streams.open(S, CHURNED)).current_epoch()
        await one.truncate.truncate(self.world.new_id(), S, CHURNED, dict.fromkeys(current.segment_ids, 0))

    async def _begin(self, one: Instance) -> object:
        try:
            return await one.transactions.create(S, CHURNED, 10_000)
        except IllegalState:
            return None

    def _seal(self, one: Instance) -> Awaitable[object]:
        return one.seal.seal(self.world.new_id(), S, CHURNED)

    def _delete(self, one: Instance) -> Awaitable[object]:
        return one.delete.delete(self.world.new_id(), S, CHURNED)

    # ---- tables ------------------------------------------------------------------------------------------------------

    async def churn_table(self) -> None:
        for _ in range(12):
            await self.insist(self.random.choice([self._create_table, self._delete_table]))
            await self.pause(0.5)

    async def _create_table(self, one: Instance) -> object:
        now_ms = self.world.clock.wall_ms()
        new = KeyValueTableRecord(self.world.new_id(), now_ms, ScopeMemberState.CREATING, 3, 4, 0)
        created = await one.tables.create(S, CHURNED, new)
        await self.require_table(one)
        return created

    def _delete_table(self, one: Instance) -> Awaitable[object]:
        return one.tables.delete(S, CHURNED)

    async def require_table(self, one: Instance) -> None:
        """The segments of a table that is active are there."""
        await self.pause(0.5)
        made = set(self.world.segments.tables)
        record = await one.tables.records.get(S, CHURNED)
        if record is not None and record.state is ScopeMemberState.ACTIVE:
            if made >= (wanted := table_segments(record)):
                return
            # It may have become active between the two looks.
            made = set(self.world.segments.tables)
            again = await one.tables.records.get(S, CHURNED)
            assert again != record or made >= wanted, sorted(wanted - made)

    # ---- the whole ---------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        clients = (self.commit_and_abort(), self.commit_and_abort(), self.scale(), self.update())
        await asyncio.gather(*clients, self.retain(), self.churn(), self.churn(), self.group())

    async def check(self) -> None:
        world = self.world
        assert [one.transactions.blocked for one in self.controllers] == [{}, {}]
        assert await requests_left(world.store) == 0
        assert world.segments.transaction_segments() == []
        await audit_streams(world.streams, world.segments)
        assert sorted(await world.readable(S, KEPT)) == sorted(self.committed)
        assert await (await world.streams.open(S, KEPT)).state() is StreamState.ACTIVE


@pytest.mark.parametrize("seed", seeds)
async def test_two_controllers_leave_everything_whole(seed: int) -> None:
    history = History(seed)
    await history.prepare()
    await history.world.run(history.play(), 900)
    for one in history.controllers:
        one.switch.fault_chance = 0.0  # type: ignore[attr-defined]
    await history.world.clock.pass_time(200)
    await history.check()
    await history.world.close()


def table_segments(record: KeyValueTableRecord) -> set[str]:
    return {table_segment_name(S, CHURNED, number) for number in record.segment_numbers}


@pytest.mark.parametrize("seed", range(int(os.environ.get("TWO_CONTROLLER_HISTORIES", "50"))))
async def test_two_controllers_keep_the_segments_of_the_table_that_stands(seed: int) -> None:
    history = History(seed)
    await history.prepare()
    world = history.world
    await world.run(asyncio.gather(history.churn_table(), history.churn_table()), 900)
    for one in history.controllers:
        one.switch.fault_chance = 0.0  # type: ignore[attr-defined]
    await world.clock.pass_time(200)
    record = await key_value_tables(world.streams).get(S, CHURNED)
    assert record is None or record.state is ScopeMemberState.ACTIVE
    assert set(world.segments.tables) == (set() if record is None else table_segments(record))
    assert await requests_left(world.store) == 0
    await world.close()
