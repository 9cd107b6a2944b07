from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_service.cluster.assignment_leader import (
    AssignmentLeader,
    rebalance_delay_s,
    retry_delay_max_s,
)
from controller_service.cluster.balancer import balance
from controller_service.cluster.host_store import AssignmentHostStore
from controller_service.errors import NoHost
from pravega_common.hashing import container_of_segment
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND, Member
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.cpo import InMemoryCPO

STORES = st.sets(st.sampled_from(["a", "b", "c", "d", "e"]))


@given(st.integers(1, 40), STORES, st.dictionaries(st.integers(0, 60), st.sampled_from("abcdexyz")))
def test_balance_is_even_and_moves_little(count: int, stores: set[str], current: dict[int, str]) -> None:
    owners = balance(count, stores, current)
    if not stores:
        assert owners == {}
        return
    assert owners.keys() == set(range(count))
    loads = [sum(1 for owner in owners.values() if owner == store) for store in stores]
    assert max(loads) - min(loads) <= 1
    assert balance(count, stores, owners) == owners
    # Nothing moves off a store that has no more than its share.
    share = -(-count // len(stores))
    for store in stores:
        before = {container for container in range(count) if current.get(container) == store}
        kept = {container for container in before if owners[container] == store}
        assert len(kept) >= min(len(before), count // len(stores))
        assert len(before) - len(kept) <= max(0, len(before) - share + 1)


class Cluster:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cpo = InMemoryCPO(self.clock)
        self.leader = AssignmentLeader(self.cpo, "one", 4, 10_000, self.clock)

    async def join(self, store: str, *failed: tuple[int, int], incarnation: str = "first") -> None:
        member = Member("127.0.0.1", 1000 + ord(store), f"{incarnation} of {store}", failed)
        await self.cpo.renew_lease(SEGMENT_STORE_KIND, store, member.to_payload(), 60_000)

    async def owners(self) -> dict[int, str]:
        return dict((await self.cpo.get_assignment()).owners)

    async def settle(self) -> None:
        await self.leader.round()
        await self.clock.advance(rebalance_delay_s)
        await self.leader.round()

    async def run_on(self) -> None:
        """The controller has run for longer than a lease."""
        for _ in range(6):
            await self.clock.advance(2)
            await self.leader.round()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_the_first_store_gets_everything_at_once(cluster: Cluster) -> None:
    await cluster.leader.round()
    assert await cluster.owners() == {}
    await cluster.join("a")
    await cluster.leader.round()
    assert await cluster.owners() == dict.fromkeys(range(4), "a")
    assert cluster.leader.is_leader


async def test_a_new_store_gets_its_share_once_the_stores_are_settled(cluster: Cluster) -> None:
    await cluster.join("a")
    await cluster.settle()
    await cluster.join("b")
    await cluster.leader.round()
    assert set((await cluster.owners()).values()) == {"a"}
    await cluster.settle()
    assert sorted((await cluster.owners()).values()) == ["a", "a", "b", "b"]


async def test_containers_of_a_dead_store_move_at_once_and_no_others(cluster: Cluster) -> None:
    await cluster.join("a")
    await cluster.join("b")
    await cluster.settle()
    await cluster.run_on()
    before = await cluster.owners()
    await cluster.cpo.release_lease(SEGMENT_STORE_KIND, "b")
    await cluster.join("c")
    await cluster.leader.round()
    after = await cluster.owners()
    assert all(after[container] == "a" for container, owner in before.items() if owner == "a")
    assert set(after.values()) == {"a", "c"}


async def test_a_store_whose_lease_alone_ran_out_keeps_its_containers_while_there_is_no_other(cluster: Cluster) -> None:
    """As on a machine that slept: the leader may come before the store renews."""
    await cluster.join("a")
    await cluster.settle()
    before = await cluster.cpo.get_assignment()
    await cluster.cpo.release_lease(SEGMENT_STORE_KIND, "a")
    await cluster.settle()
    assert (await cluster.cpo.get_assignment()).version == before.version, "its containers would all be stopped"
    await cluster.join("a")
    await cluster.settle()
    assert (await cluster.cpo.get_assignment()).version == before.version
    await cluster.run_on()
    await cluster.cpo.release_lease(SEGMENT_STORE_KIND, "a")
    await cluster.join("b")
    await cluster.leader.round()
    assert set((await cluster.owners()).values()) == {"b"}


async def test_behind_a_sleep_of_the_machine_the_first_store_to_renew_does_not_get_all(cluster: Cluster) -> None:
    """All leases ran out by the time of day, and the clock of leases stood still."""
    await cluster.join("a")
    await cluster.join("b")
    await cluster.settle()
    before = await cluster.owners()
    cluster.clock.suspend(3_600)
    await cluster.cpo.release_lease(SEGMENT_STORE_KIND, "b")
    await cluster.join("a")
    await cluster.leader.round()
    assert await cluster.owners() == before
    await cluster.join("b")
    await cluster.settle()
    assert await cluster.owners() == before
    await cluster.cpo.release_lease(SEGMENT_STORE_KIND, "b")
    for _ in range(6):
        await cluster.clock.advance(2)
        await cluster.leader.round()
    assert set((await cluster.owners()).values()) == {"a"}


async def test_where_the_oracles_clock_was_set_the_first_store_to_renew_does_not_get_all(cluster: Cluster) -> None:
    """All leases end at once by a clock that is set forward, those of stores that run on, too."""
    await cluster.join("a")
    await cluster.join("b")
    await cluster.settle()
    before = await cluster.owners()
    cluster.cpo.time_of_day = ManualClock(wall_ms=cluster.clock.wall_ms() + 3_600_000)
    await cluster.cpo.release_lease(SEGMENT_STORE_KIND, "b")
    await cluster.leader.round()
    assert await cluster.owners() == before
    await cluster.join("b")
    await cluster.settle()
    assert await cluster.owners() == before


@pytest.mark.parametrize("comes_back", [True, False])
@pytest.mark.parametrize("outage_s", [7, 61])
async def test_behind_an_outage_of_the_oracle_stores_have_a_lease_time_to_come_back(
    cluster: Cluster, outage_s: float, comes_back: bool
) -> None:
    """Also behind one that is shorter than a lease: the next renewal of one may have been due when it began."""
    await cluster.join("a")
    await cluster.join("b")
    await cluster.settle()
    before = await cluster.owners()
    assert set(before.values()) == {"a", "b"}
    # All leases ran out while nothing could be renewed; "a" is the first to come back.
    await cluster.clock.advance(outage_s)
    await cluster.cpo.release_lease(SEGMENT_STORE_KIND, "b")
    await cluster.join("a")
    await cluster.leader.round()
    assert await cluster.owners() == before
    for _ in range(4):
        await cluster.clock.advance(2)
        await cluster.join("a")
        await cluster.leader.round()
    await cluster.clock.advance(1)
    if comes_back:
        await cluster.join("b")
    await cluster.leader.round()
    assert await cluster.owners() == before
    await cluster.clock.advance(2)
    await cluster.leader.round()
    assert set((await cluster.owners()).values()) == ({"a", "b"} if comes_back else {"a"})


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_controller_that_starts_gives_stores_a_lease_time_to_come_back(
    cluster: Cluster, comes_back: bool
) -> None:
    """As where the machines of a cluster start again: it does not know how long no lease could be renewed."""
    await cluster.join("a")
    await cluster.join("b")
    await cluster.settle()
    before = await cluster.owners()
    for store in ("a", "b"):
        await cluster.cpo.release_lease(SEGMENT_STORE_KIND, store)
    await cluster.clock.advance(3_600)
    leader = AssignmentLeader(cluster.cpo, "two", 4, 10_000, cluster.clock)
    await cluster.join("a")
    for _ in range(4):
        await leader.round()
        assert await cluster.owners() == before
        await cluster.clock.advance(2)
    if comes_back:
        await cluster.join("b")
    await leader.round()
    assert await cluster.owners() == before
    await cluster.clock.advance(3)
    await leader.round()
    assert set((await cluster.owners()).values()) == ({"a", "b"} if comes_back else {"a"})


async def test_only_the_elected_one_assigns(cluster: Cluster) -> None:
    await cluster.leader.round()
    other = AssignmentLeader(cluster.cpo, "two", 4, 10_000, cluster.clock)
    await cluster.join("a")
    await other.round()
    assert not other.is_leader
    assert await cluster.owners() == {}
    await cluster.clock.advance(11)
    await other.round()
    assert other.is_leader
    assert len(await cluster.owners()) == 4


async def test_a_failed_container_is_assigned_again_with_back_off(cluster: Cluster) -> None:
    await cluster.join("a")
    await cluster.settle()
    version = (await cluster.cpo.get_assignment()).version
    delays = []
    for _ in range(3):
        await cluster.join("a", (2, version))
        waited_s = 0.0
        while (await cluster.cpo.get_assignment()).version == version:
            await cluster.clock.advance(0.5)
            waited_s += 0.5
            await cluster.join("a", (2, version))
            await cluster.leader.round()
            assert waited_s < 30
        version = (await cluster.cpo.get_assignment()).version
        delays.append(waited_s)
    assert delays == sorted(delays)
    assert delays[-1] > delays[0]


async def test_a_container_that_fails_is_not_started_whenever_another_is(cluster: Cluster) -> None:
    """A new version of the assignment starts all that failed, so the back-off of one is that of each."""
    await cluster.join("a")
    await cluster.settle()
    failed: list[int] = []
    versions: list[float] = []
    for turn in range(1_200):
        version = (await cluster.cpo.get_assignment()).version
        if turn % 40 == 0 and len(failed) < 4:
            failed.append(len(failed))
        await cluster.join("a", *((container, version) for container in failed))
        await cluster.leader.round()
        if (await cluster.cpo.get_assignment()).version != version:
            versions.append(turn / 2)
        await cluster.clock.advance(0.5)
    late = [when for when in versions if when >= 300]
    assert len(late) <= 300 / retry_delay_max_s + 1, "each of four containers was started every 15 seconds"


async def test_the_host_store_answers_for_any_segment(cluster: Cluster) -> None:
    hosts = AssignmentHostStore(cluster.cpo, 4, cluster.clock)
    await hosts.start()
    with pytest.raises(NoHost):
        await hosts.owner_of("scope/never_created_kvtable/0.#epoch.0")
    assert hosts.ownerless == [0, 1, 2, 3]
    await cluster.join("a")
    await cluster.join("b")
    await cluster.settle()
    await cluster.clock.advance(1)
    owners = await cluster.owners()
    for number in range(20):
        segment = f"scope/stream/{number}.#epoch.0"
        owner = owners[container_of_segment(segment, 4)]
        assert await hosts.owner_of(segment) == ("127.0.0.1", 1000 + ord(owner))
    assert not hosts.ownerless
    await hosts.stop()


async def test_a_doubted_answer_is_looked_up_again(cluster: Cluster) -> None:
    await cluster.join("a")
    await cluster.settle()
    hosts = AssignmentHostStore(cluster.cpo, 4, cluster.clock)
    await hosts.start()
    segment = "scope/stream/0.#epoch.0"
    assert (await hosts.resolve(segment)).port == 1000 + ord("a")
    member = Member("127.0.0.1", 7, "second")
    await cluster.cpo.renew_lease(SEGMENT_STORE_KIND, "a", member.to_payload(), 60_000)
    await cluster.clock.advance(1)
    hosts.forget(segment)
    assert (await hosts.resolve(segment)).port == 7
    await hosts.stop()


async def test_a_new_assignment_counts_once_all_stores_have_started_behind_the_loss_of_the_old_one(
    cluster: Cluster,
) -> None:
    """An oracle that lost its data begins with the first version again, while controllers run on."""
    await cluster.join("a")
    await cluster.settle()
    await cluster.join("a", (0, 1))
    for _ in range(3):
        await cluster.clock.advance(2)
        await cluster.leader.round()
    hosts = AssignmentHostStore(cluster.cpo, 4, cluster.clock)
    await hosts.start()
    known = hosts.placement
    cluster.cpo = hosts._cpo = cluster.leader._cpo = InMemoryCPO(cluster.clock)
    await cluster.clock.advance(1)
    await hosts.look_again()
    assert dict(hosts.placement.owners) == dict(known.owners), "nothing is known yet"
    # Stores that run on keep their containers, whatever the oracle says.
    await cluster.join("a")
    await cluster.join("b")
    await cluster.settle()
    assert 0 < (await cluster.cpo.get_assignment()).version < known.version
    await hosts.look_again()
    assert dict(hosts.placement.owners) == dict(known.owners) != await cluster.owners()
    # The remedy is to stop all, to register them again, and to start them.
    for store in ("a", "b"):
        await cluster.join(store, incarnation="second")
    await cluster.clock.advance(1)
    await hosts.look_again()
    assert dict(hosts.placement.owners) == await cluster.owners()
    await hosts.stop()
