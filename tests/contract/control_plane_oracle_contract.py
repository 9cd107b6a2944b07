"""Says how every ``ControlPlaneOracle`` behaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from pravega_common.errors import Fenced, InvalidArgument, VersionConflict
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from pravega_common.services.settings import lease_ms_max

Pair = tuple[ControlPlaneOracle, ControlPlaneOracle]
LetExpire = Callable[[int], Awaitable[None]]
"""Returns when a lease of this many milliseconds that was taken before the call is over."""


class ControlPlaneOracleContract:
    """A subclass gives two fixtures: ``cpos``, two connections to the same, empty oracle, and ``let_expire``."""

    async def test_a_constant_is_written_once(self, cpos: Pair) -> None:
        one, two = cpos
        assert await one.get_constant("containers") is None
        assert await one.set_once("containers", "4") == "4"
        assert await two.set_once("containers", "8") == "4"
        assert await two.get_constant("containers") == "4"

    async def test_a_constant_is_replaced_by_compare_and_set(self, cpos: Pair) -> None:
        one, two = cpos
        with pytest.raises(VersionConflict, match="not set"):
            await one.replace_constant("server", "old", "new")
        await one.replace_constant("server", None, "old")
        with pytest.raises(VersionConflict, match="is old"):
            await two.replace_constant("server", None, "new")
        await two.replace_constant("server", "old", "new")
        await two.replace_constant("server", "old", "new")
        assert await one.get_constant("server") == await one.set_once("server", "other") == "new"

    async def test_epochs_are_raised_and_never_lowered(self, cpos: Pair) -> None:
        one, two = cpos
        assert await one.raise_epoch(3, 7) == 7
        assert await two.raise_epoch(3, 5) == 7
        assert await two.current_epoch(3) == 7
        assert await one.take_epoch(3, "a") == 8

    async def test_persistence_clusters_are_found_by_name(self, cpos: Pair) -> None:
        one, two = cpos
        cluster = PersistenceCluster("main", (PersistenceGroup("g0", ("127.0.0.1:1", "127.0.0.1:2")),))
        assert await two.get_persistence_cluster("main") is None
        registered = await one.put_persistence_cluster(cluster)
        assert registered == replace(cluster, version=1)
        assert await two.get_persistence_cluster("main") == registered
        with pytest.raises(InvalidArgument, match="at least one group"):
            await one.put_persistence_cluster(PersistenceCluster("main", ()))
        with pytest.raises(InvalidArgument, match="two groups of one name"):
            await one.put_persistence_cluster(PersistenceCluster("main", cluster.groups * 2))

    async def test_persistence_clusters_change_by_compare_and_set(self, cpos: Pair) -> None:
        one, two = cpos
        groups = [PersistenceGroup(f"g{number}", (f"127.0.0.1:{number}",)) for number in range(3)]
        first = await one.put_persistence_cluster(PersistenceCluster("main", (groups[0],)))
        second = await two.put_persistence_cluster(PersistenceCluster("main", (groups[1], groups[0]), first.version))
        assert second == PersistenceCluster("main", (groups[0], groups[1]), 2)
        for stale in (0, first.version, 3):
            with pytest.raises(VersionConflict, match="at version 2"):
                await one.put_persistence_cluster(PersistenceCluster("main", (groups[2],), stale))
        assert await one.put_persistence_cluster(PersistenceCluster("main", second.groups, 0)) == second, "the same"
        assert await one.get_persistence_cluster("main") == second

    async def test_epochs_grow_and_obey_the_floor(self, cpos: Pair) -> None:
        one, two = cpos
        assert await one.current_epoch(3) == 0
        assert [await one.take_epoch(3, "a"), await two.take_epoch(3, "b")] == [1, 2]
        assert await one.take_epoch(3, "a", at_least=10) == 10
        assert await one.take_epoch(3, "a", at_least=4) == 11
        assert await two.current_epoch(3) == 11
        assert await two.take_epoch(4, "b") == 1

    @pytest.mark.parametrize("ttl_ms", [0, -1, lease_ms_max + 1])
    async def test_the_length_of_a_lease_has_limits(self, cpos: Pair, ttl_ms: int) -> None:
        one, _ = cpos
        with pytest.raises(InvalidArgument, match=f"a lease of {ttl_ms} ms"):
            await one.renew_lease("kind", "a", {}, ttl_ms)
        with pytest.raises(InvalidArgument, match=f"a lease of {ttl_ms} ms"):
            await one.try_lead("role", "a", ttl_ms)

    async def test_many_calls_at_a_time_wait_for_each_other(self, cpos: Pair) -> None:
        one, _ = cpos
        taken = await asyncio.gather(*(one.take_epoch(number, "a") for number in range(100)))
        assert taken == await asyncio.gather(*(one.current_epoch(number) for number in range(100))) == [1] * 100

    async def test_concurrent_epochs_are_distinct(self, cpos: Pair) -> None:
        one, two = cpos
        epochs = await asyncio.gather(*(cpo.take_epoch(0, "x") for cpo in (one, two) for _ in range(10)))
        assert sorted(epochs) == list(range(1, 21))

    async def test_an_epoch_needs_the_assignment_once_there_is_one(self, cpos: Pair) -> None:
        one, two = cpos
        await one.take_epoch(0, "anybody")
        await one.put_assignment(0, {0: "a", 1: "b"})
        with pytest.raises(Fenced, match="assigned to a, not to b"):
            await two.take_epoch(0, "b")
        with pytest.raises(Fenced, match="no store"):
            await two.take_epoch(7, "b")
        assert await two.current_epoch(0) == 1
        assert await two.take_epoch(0, "a") == 2

    async def test_metadata_plog_changes_by_compare_and_set(self, cpos: Pair) -> None:
        one, two = cpos
        epoch = await one.take_epoch(5, "a")
        assert await one.get_metadata_plog(5) is None
        await one.put_metadata_plog(5, epoch, None, "p1")
        with pytest.raises(VersionConflict, match="p1"):
            await two.put_metadata_plog(5, epoch, None, "p2")
        await two.put_metadata_plog(5, epoch, "p1", "p2")
        await two.put_metadata_plog(5, epoch, "p1", "p2")
        assert await one.get_metadata_plog(5) == "p2"

    async def test_metadata_plog_needs_the_current_epoch(self, cpos: Pair) -> None:
        one, two = cpos
        old = await one.take_epoch(5, "a")
        new = await two.take_epoch(5, "b")
        with pytest.raises(Fenced, match=str(new)):
            await one.put_metadata_plog(5, old, None, "p1")
        with pytest.raises(Fenced):
            await one.put_metadata_plog(5, new + 1, None, "p1")
        assert await one.get_metadata_plog(5) is None

    async def test_leases_list_payloads_until_released(self, cpos: Pair) -> None:
        one, two = cpos
        await one.renew_lease("store", "s1", {"port": 1}, 60_000)
        await two.renew_lease("store", "s2", {"port": 2}, 60_000)
        await one.renew_lease("controller", "c1", {}, 60_000)
        await one.renew_lease("store", "s1", {"port": 9, "name": "é"}, 60_000)
        assert await two.members("store") == {"s1": {"port": 9, "name": "é"}, "s2": {"port": 2}}
        await one.release_lease("store", "s2")
        await one.release_lease("store", "absent")
        assert set(await two.members("store")) == {"s1"}
        assert await one.members("nothing") == {}

    async def test_a_renewal_tells_the_time_of_day(self, cpos: Pair, let_expire: LetExpire) -> None:
        one, two = cpos
        before_ms = await one.renew_lease("store", "s1", {}, 60_000)
        await let_expire(30)
        after_ms = await two.renew_lease("controller", "c1", {}, 60_000)
        assert 0 <= await one.time_of_day_ms() - after_ms < 60_000
        assert before_ms > 1_600_000_000_000 and 30 <= after_ms - before_ms < 60_000

    async def test_leases_run_out_and_come_back(self, cpos: Pair, let_expire: LetExpire) -> None:
        one, two = cpos
        await one.renew_lease("store", "s1", {}, 30)
        await one.renew_lease("store", "s2", {}, 60_000)
        await let_expire(30)
        assert set(await two.members("store")) == {"s2"}
        await one.renew_lease("store", "s1", {}, 60_000)
        assert set(await two.members("store")) == {"s1", "s2"}

    async def test_one_leader_at_a_time(self, cpos: Pair, let_expire: LetExpire) -> None:
        one, two = cpos
        assert await one.leader("assigner") is None
        assert await one.try_lead("assigner", "a", 60_000)
        assert not await two.try_lead("assigner", "b", 60_000)
        assert await one.try_lead("assigner", "a", 40)
        await two.resign("assigner", "b")
        assert await two.leader("assigner") == "a"
        await let_expire(40)
        assert await two.leader("assigner") is None
        assert await two.try_lead("assigner", "b", 60_000)
        await two.resign("assigner", "b")
        assert await one.try_lead("assigner", "a", 60_000)

    async def test_locks_are_not_leaderships(self, cpos: Pair) -> None:
        one, two = cpos
        assert await one.try_lead("x", "a", 60_000)
        assert await two.try_lock("x", "b", 60_000)
        assert not await one.try_lock("x", "a", 60_000)
        await one.unlock("x", "a")
        assert not await one.try_lock("x", "a", 60_000)
        await two.unlock("x", "b")
        assert await one.try_lock("x", "a", 60_000)

    async def test_assignment_changes_by_compare_and_set(self, cpos: Pair) -> None:
        one, two = cpos
        empty = await one.get_assignment()
        assert (empty.version, dict(empty.owners)) == (0, {})
        assert await one.put_assignment(0, {0: "a", 1: "b", 2: "a"}) == 1
        with pytest.raises(VersionConflict, match="version 1"):
            await two.put_assignment(0, {0: "z"})
        assert await two.put_assignment(1, {1: "b"}) == 2
        now = await one.get_assignment()
        assert (now.version, dict(now.owners)) == (2, {1: "b"})

    async def test_waiting_for_an_assignment(self, cpos: Pair) -> None:
        one, two = cpos
        waiting = asyncio.create_task(two.wait_assignment(0, 30.0))
        assert (await one.wait_assignment(0, 0.05)).version == 0
        assert not waiting.done()
        await one.put_assignment(0, {0: "a"})
        assert dict((await asyncio.wait_for(waiting, 1.0)).owners) == {0: "a"}
        assert (await two.wait_assignment(0, 30.0)).version == 1
        assert (await two.wait_assignment(1, 0.05)).version == 1

    async def test_tasks_are_found_after_their_member(self, cpos: Pair) -> None:
        one, two = cpos
        await one.add_task("c1", "create/s:1", {"step": 1})
        await one.add_task("c1", "create/s:2", {})
        await one.add_task("c1", "create/s:1", {"step": 2})
        assert await two.tasks() == {"c1": {"create/s:1": {"step": 2}, "create/s:2": {}}}
        assert await two.move_task("create/s:1", "c1", "c2")
        assert not await two.move_task("create/s:1", "c1", "c3")
        await one.remove_task("c1", "create/s:2")
        assert await one.tasks() == {"c2": {"create/s:1": {"step": 2}}}

    async def test_bad_values_are_refused(self, cpos: Pair) -> None:
        one, _ = cpos
        with pytest.raises(InvalidArgument, match="1 to 512"):
            await one.set_once("", "x")
        with pytest.raises(InvalidArgument, match="70000 bytes"):
            await one.set_once("big", "x" * 70_000)
        with pytest.raises(InvalidArgument, match="0 ms"):
            await one.try_lock("l", "me", 0)
