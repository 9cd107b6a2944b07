"""Periodic jobs that meet an exception nobody thought of, or a record that cannot be read: the controller goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller_service.buckets.retention_job import RetentionJob
from controller_service.cluster.assignment_leader import AssignmentLeader
from controller_service.cluster.membership import Membership
from controller_service.queue.table_request_queue import REQUESTS_TABLE
from controller_service.store.marked_streams import MarkedStreams
from controller_service.store.records import StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.versioned_store import ABSENT
from controller_service.watermarks.watermark_job import WatermarkJob
from pravega_common.services.cluster.oracle_clock import OracleClock
from pravega_common.services.cluster.registry import Member
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.transaction_world import Crashed, World

S, T = "scope", "stream"


async def nothing_to_do(context: StreamContext) -> bool:
    """A retention without a policy."""
    return False


async def nothing_left(scope: str, stream: str) -> bool:
    """A watermark of a stream without marks."""
    return False


JOBS: dict[str, Callable[[World], tuple[Any, str]]] = {
    "queue": lambda world: (world.add_instance().queue, "sweep"),
    "transactions": lambda world: (world.add_instance().transactions, "sweep"),
    "time-outs": lambda world: (world.add_instance().transactions, "_expire"),
    "sets": lambda world: (world.add_instance().sets, "sweep"),
    "retention": lambda world: (
        RetentionJob(world.streams, [nothing_to_do], "c1", world.live_owners, world.clock, 1_000),
        "run_once",
    ),
    "watermarks": lambda world: (
        WatermarkJob(MarkedStreams(world.streams), nothing_left, "c1", world.live_owners, world.clock, 1_000),
        "run_once",
    ),
    "leader": lambda world: (AssignmentLeader(InMemoryCPO(), "c1", 4, 10_000, world.clock), "round"),
    "membership": lambda world: (
        Membership(InMemoryCPO(), "c1", Member("host", 1, "c1"), 10_000, OracleClock(world.clock)),
        "_renew",
    ),
}


@pytest.mark.parametrize("name", JOBS)
async def test_a_job_goes_on_after_an_exception(name: str, world: World) -> None:
    service, method = JOBS[name](world)
    work = getattr(service, method)
    calls = 0

    async def once_broken(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        # The first call of some is a part of the start.
        if calls == 2:
            raise ZeroDivisionError("a bug")
        return await work(*args)

    setattr(service, method, once_broken)
    await world.run(service.start())
    if name == "time-outs":
        for _ in range(3):
            await world.run(service.create(S, T, 10_000))
    await world.clock.pass_time(300)
    assert service.is_running
    assert calls > 2
    await world.run(service.stop())


async def test_a_request_that_cannot_be_read_keeps_no_other_one_back(world: World) -> None:
    one = world.add_instance()
    await world.store.create_table(REQUESTS_TABLE)
    await world.store.put(REQUESTS_TABLE, "dead/00000000000000/0", b"not a record", ABSENT)
    first = world.add_instance()
    first.die_at("controller.request_submitted")
    await world.run(first.start())
    with pytest.raises(Crashed):
        await world.run(first.seal.seal("now", S, T), 5)
    await world.run(first.kill())
    await world.run(one.start())
    await world.clock.pass_time(10)
    assert await (await world.streams.open(S, T)).state() is StreamState.SEALED
