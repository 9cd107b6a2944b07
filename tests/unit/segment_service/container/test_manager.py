"""A store's place in the cluster: lease, assignment, failures, and what happens when the CPO is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping

import pytest

from pravega_common.errors import ContainerNotHosted, Unavailable
from pravega_common.services.cluster.oracle_clock import OracleClock
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND, Member, failure_reasons_bytes_max
from pravega_common.services.problems import LEASE_LOST, Problem
from segment_service.container.manager import ContainerManager, ManagerConfig
from segment_service.container.registry import ContainerRegistry
from segment_service.container.start_counts import StartCounts
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.cpo import InMemoryCPO


class Cluster:
    """A CPO, and stores that share logs and Tier 2."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cpo = InMemoryCPO(self.clock)
        self.kit = ContainerKit(clock=self.clock)
        self.stores: dict[str, tuple[ContainerManager, ContainerRegistry]] = {}
        self.starts: dict[str, StartCounts] = {}
        self.dropped = 0
        """Containers that managers need no more."""
        self.problems: list[Problem] = []
        """What the health of every store names."""

    async def start(self, store_id: str) -> ContainerRegistry:
        registry = ContainerRegistry()
        config = ManagerConfig(store_id, "localhost", 1, f"{store_id}-1", lease_ms=1_000, stale_read_max_ms=1_000)
        starts = self.starts[store_id] = StartCounts()
        manager = ContainerManager(
            config,
            self.cpo,
            registry,
            self.kit.make,
            OracleClock(self.clock),
            problems=lambda: self.problems,
            starts=starts,
            on_dropped=self._count_dropped,
        )
        await manager.start()
        self.stores[store_id] = (manager, registry)
        return registry

    def _count_dropped(self) -> None:
        self.dropped += 1

    async def assign(self, owners: Mapping[int, str]) -> None:
        await self.cpo.put_assignment((await self.cpo.get_assignment()).version, owners)

    async def stop(self) -> None:
        for manager, _ in self.stores.values():
            await manager.stop()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.stop()


def hosted(registry: ContainerRegistry) -> set[int]:
    return {container.container_id for container in registry}


async def reports(cluster: Cluster, store_id: str, failed: tuple[tuple[int, int], ...]) -> bool:
    """Whether the store's lease names exactly these failed containers, with the versions of their assignments."""
    payload = (await cluster.cpo.members(SEGMENT_STORE_KIND))[store_id]
    return Member.from_payload(payload).failed_containers == failed


async def test_a_store_knows_how_far_its_clock_is_from_the_oracles(cluster: Cluster) -> None:
    cluster.cpo.time_of_day = ManualClock(wall_ms=cluster.clock.wall_ms() - 86_400_000)
    await cluster.start("one")
    assert cluster.stores["one"][0]._clock.ahead_s == 86_400


async def test_containers_follow_the_assignment(cluster: Cluster) -> None:
    one, two = await cluster.start("one"), await cluster.start("two")
    assert set(await cluster.cpo.members(SEGMENT_STORE_KIND)) == {"one", "two"}
    await cluster.assign({0: "one", 1: "one", 2: "two"})
    await eventually(lambda: hosted(one) == {0, 1} and hosted(two) == {2}, "assigned containers run")
    await one.get(1).create_segment("s")
    await one.get(1).append("s", [b"moves along"])
    await cluster.assign({0: "one", 1: "two", 2: "two"})
    await eventually(lambda: hosted(one) == {0} and hosted(two) == {1, 2}, "a container moves")
    await eventually(lambda: cluster.dropped == 1, "the store that gave it up has stopped it")
    assert (await two.get(1).get_info("s")).length == 11
    with pytest.raises(ContainerNotHosted):
        one.get(1)


async def test_a_container_that_comes_back_before_its_start_was_given_up_starts(cluster: Cluster) -> None:
    one, _ = await cluster.start("one"), await cluster.start("two")
    manager = cluster.stores["one"][0]
    cluster.kit.chunks.stop()
    await cluster.assign({0: "one"})
    await eventually(lambda: 0 in manager._live and bool(manager._live[0].waits_for), "the start waits for Tier 2")
    slow = manager._live[0]
    end, is_reached, is_open = slow.on_stop, asyncio.Event(), asyncio.Event()

    async def held() -> None:
        is_reached.set()
        await is_open.wait()
        await end()

    slow.on_stop = held  # type: ignore[method-assign]
    await cluster.assign({0: "two"})
    await asyncio.wait_for(is_reached.wait(), 5)
    await cluster.assign({0: "one"})
    await eventually(lambda: manager._assignment.version == 3, "the store knows the last assignment")
    cluster.kit.chunks.resume()
    is_open.set()

    def starts() -> bool:
        assert manager._failed == {}, manager.not_serving
        return hosted(one) == {0}

    await eventually(starts, "the container runs")


async def test_a_failed_container_is_reported_and_waits_for_the_next_assignment(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    await cluster.assign({0: "one", 1: "one"})
    await eventually(lambda: hosted(registry) == {0, 1}, "assigned containers run")
    registry.get(0).fail(RuntimeError("broken"))
    await eventually(lambda: hosted(registry) == {1}, "a failed container is gone")
    await eventually(lambda: reports(cluster, "one", ((0, 1),)), "the failure is reported")
    assert cluster.dropped == 1
    await pass_time(cluster.clock, 10)
    assert hosted(registry) == {1}, "it is not started again by itself"
    await cluster.assign({0: "one", 1: "one"})
    await eventually(lambda: hosted(registry) == {0, 1}, "assigned again, it starts")
    await pass_time(cluster.clock, 1)
    assert await reports(cluster, "one", ()), "a container that runs again is reported no more"


async def test_a_container_that_cannot_start_is_reported(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    cluster.kit.logs.faults.initialize_error = Unavailable("injected")
    await cluster.assign({0: "one"})
    await eventually(lambda: reports(cluster, "one", ((0, 1),)), "the failure is reported")
    await cluster.assign({0: "one"})
    await eventually(lambda: hosted(registry) == {0}, "assigned again, it starts")


async def test_starts_and_failures_are_counted(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    starts = cluster.starts["one"]
    await cluster.assign({0: "one", 1: "one"})
    await eventually(lambda: hosted(registry) == {0, 1}, "the containers run")
    assert (starts.recoveries.count, starts.failures) == (2, 0)
    registry.get(0).fail(Unavailable("broken"))
    await eventually(lambda: reports(cluster, "one", ((0, 1),)), "the failure is reported")
    await cluster.assign({0: "one", 1: "one"})
    await eventually(lambda: hosted(registry) == {0, 1}, "assigned again, it starts")
    assert (starts.recoveries.count, starts.failures) == (3, 1)


async def test_a_log_that_was_lost_is_reported_with_the_reason(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    manager = cluster.stores["one"][0]
    await cluster.assign({0: "one"})
    await eventually(lambda: hosted(registry) == {0}, "the container runs")
    await cluster.assign({})
    await eventually(lambda: hosted(registry) == set(), "the container stops")
    cluster.kit.logs.restore(0)
    await cluster.assign({0: "one"})
    await eventually(lambda: reports(cluster, "one", ((0, 3),)), "the failure is reported")
    payload = (await cluster.cpo.members(SEGMENT_STORE_KIND))["one"]
    ((container, reason),) = Member.from_payload(payload).failure_reasons
    assert container == 0 and "Tier 1 was lost" in reason
    assert manager.not_serving == {0: {"state": "failed", "reason": reason}}
    await pass_time(cluster.clock, 10)
    assert cluster.kit.logs.entries(0) == []


async def test_reasons_of_many_failures_do_not_cost_the_lease(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    count = 150
    await cluster.assign(dict.fromkeys(range(count), "one"))
    await eventually(lambda: len(hosted(registry)) == count, "the containers run")
    for number in range(1, count):
        registry.get(number).fail(RuntimeError("é" * 600))
    await eventually(lambda: hosted(registry) == {0}, "all but one have failed")
    manager = cluster.stores["one"][0]
    await pass_time(cluster.clock, 2)
    assert await reports(cluster, "one", tuple((number, 1) for number in range(1, count)))
    assert manager.lease_left_s > 0 and len(manager.not_serving) == count - 1
    payload = (await cluster.cpo.members(SEGMENT_STORE_KIND))["one"]
    reasons = Member.from_payload(payload).failure_reasons
    assert reasons and all(reason.endswith("é" * 100) for _, reason in reasons)
    assert len(json.dumps(payload["failure_reasons"])) <= failure_reasons_bytes_max


async def test_a_start_that_waits_is_given_up_with_the_assignment(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    manager = cluster.stores["one"][0]
    cluster.kit.chunks.stop()
    await cluster.assign({0: "one"})
    await eventually(lambda: "Tier 2" in manager.not_serving.get(0, {}).get("waits_for", ""), "the start waits")
    await cluster.assign({})
    await eventually(lambda: manager.not_serving == {}, "the start is given up")
    cluster.kit.chunks.resume()
    await cluster.assign({0: "one"})
    await eventually(lambda: hosted(registry) == {0}, "assigned again, it starts")


async def test_problems_go_with_the_lease_but_not_that_it_was_lost(cluster: Cluster) -> None:
    cluster.problems = [
        Problem(LEASE_LOST, "no lease", "look at Redis", stops_work=True),
        Problem("tier2-failing", "all calls fail", "bring it back", stops_work=True),
    ]
    await cluster.start("one")
    payload = (await cluster.cpo.members(SEGMENT_STORE_KIND))["one"]
    assert Member.from_payload(payload).problems == (cluster.problems[1],)


async def test_losing_the_cpo_stops_nothing(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    await cluster.assign({0: "one"})
    await eventually(lambda: hosted(registry) == {0}, "assigned containers run")
    cluster.cpo.unavailable = True
    await pass_time(cluster.clock, 10)
    assert hosted(registry) == {0}
    await registry.get(0).create_segment("s")
    cluster.cpo.unavailable = False
    await cluster.assign({0: "one", 3: "one"})
    await eventually(lambda: hosted(registry) == {0, 3}, "the assignment is followed again")


async def test_stopping_gives_up_the_lease(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    await cluster.assign({0: "one"})
    await eventually(lambda: hosted(registry) == {0}, "assigned containers run")
    container = registry.get(0)
    await cluster.stop()
    assert await cluster.cpo.members(SEGMENT_STORE_KIND) == {}
    assert not container.is_running and hosted(registry) == set()


async def test_a_store_that_stops_takes_no_container_over(cluster: Cluster) -> None:
    registry = await cluster.start("one")
    await cluster.assign({0: "one"})
    await eventually(lambda: hosted(registry) == {0}, "assigned containers run")
    await registry.get(0).create_segment("s")
    cluster.kit.logs.faults.hold()
    waiting = registry.get(0).append("s", [b"x"])
    stopping = asyncio.ensure_future(cluster.stores["one"][0].stop())
    await eventually(lambda: hosted(registry) == set(), "the stop is under way")
    await cluster.assign({0: "one", 1: "one"})
    await pass_time(cluster.clock, 3)
    assert not stopping.done() and cluster.kit.logs.container(1).epoch == 0
    cluster.kit.logs.faults.release()
    await stopping
    assert await waiting == 1
    assert cluster.kit.logs.container(1).epoch == 0


async def test_a_store_is_stale_long_after_its_lease_ran_out() -> None:
    clock = ManualClock()
    cpo = InMemoryCPO(clock)
    config = ManagerConfig("one", "localhost", 1, "1", lease_ms=9_000, stale_read_max_ms=5_000)
    manager = ContainerManager(config, cpo, ContainerRegistry(), ContainerKit(clock=clock).make, OracleClock(clock))
    await manager.start()
    await pass_time(clock, 100)
    assert not manager.is_stale
    cpo.unavailable = True
    await pass_time(clock, 10)
    assert not manager.is_stale
    await pass_time(clock, 5)
    assert manager.is_stale
    cpo.unavailable = False
    await pass_time(clock, 1)
    assert not manager.is_stale
    await manager.stop()


async def pass_time(clock: ManualClock, seconds: int) -> None:
    """In small steps, so that a task that wakes can go to sleep again in time."""
    for _ in range(seconds * 10):
        await asyncio.sleep(0)
        await clock.advance(0.1)
