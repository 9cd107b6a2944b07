"""The replacement of a server: what is refused, what is registered, when it is complete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pravega_common.errors import ConfigurationError, Unavailable, VersionConflict
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.maintenance.server_replacement import Progress, ServerReplacement
from segment_service.plog.cluster_registration import (
    ServerFacts,
    register_groups,
    server_identity_key,
    successor_key,
    successors_max,
)
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.cpo import InMemoryCPO

GROUPS = (PersistenceGroup("a", ("a0", "a1", "a2")), PersistenceGroup("b", ("b0",)))


class Operator:
    """A cluster of two containers with a log, whose servers show the identities on record."""

    def __init__(self) -> None:
        self.cpo = InMemoryCPO()
        self.identities: dict[str, str | None] = {server: f"of {server}" for one in GROUPS for server in one.servers}
        self.identities["new"] = None
        self.processes: dict[str, str] = {}
        self.away: set[str] = set()

    async def start(self) -> None:
        await self.cpo.set_once(CONTAINER_COUNT_KEY, "3")
        await self.cpo.put_persistence_cluster(PersistenceCluster("main", GROUPS))
        for group in GROUPS:
            for index, server in enumerate(group.servers):
                await self.cpo.set_once(server_identity_key("main", group.name, index), f"of {server}")
        for container_id in range(2):
            epoch = await self.cpo.take_epoch(container_id, "store")
            await self.cpo.put_metadata_plog(container_id, epoch, None, f"main/a/{container_id}")

    async def ask(self, address: str) -> ServerFacts:
        if address in self.away:
            raise Unavailable(f"Redis at {address} is not reachable")
        return ServerFacts(self.processes.get(address, address), self.identities.get(address))

    def replacing(self, old: str, new: str, group: str = "a") -> ServerReplacement:
        return ServerReplacement(self.cpo, self.ask, ManualClock(), "main", group, old, new)

    async def servers(self) -> tuple[str, ...]:
        cluster = await self.cpo.get_persistence_cluster("main")
        assert cluster is not None
        return cluster.groups[0].servers

    async def admit(self, container_id: int, index: int, identity: str) -> None:
        key = f"{server_identity_key('main', 'a', index)}/{container_id}"
        await self.cpo.replace_constant(key, await self.cpo.get_constant(key), identity)


@pytest.fixture
async def operator() -> Operator:
    operator = Operator()
    await operator.start()
    return operator


async def test_the_new_server_takes_the_place_of_the_old_one_that_is_gone(operator: Operator) -> None:
    operator.away.add("a1")
    assert (await operator.replacing("a1", "new").register()).version == 2
    assert await operator.servers() == ("a0", "new", "a2")
    assert (await operator.replacing("a1", "new").register()).version == 2, "repeated"


@pytest.mark.parametrize(
    ("old", "new", "group", "text"),
    [
        ("a9", "new", "a", "a9 is no server of group a: these are a0, a1, a2"),
        ("a1", "a2", "a", "a2 is a server of group a"),
        ("a1", "b0", "a", "b0 is a server of group b"),
        ("b0", "new", "b", "group b has one server"),
        ("a1", "new", "c", "has no persistence group c"),
    ],
)
async def test_a_place_that_cannot_be_taken(operator: Operator, old: str, new: str, group: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        await operator.replacing(old, new, group).register()
    assert await operator.servers() == ("a0", "a1", "a2")


@pytest.mark.parametrize("shown", ["of a1", "of a2", "of b0"])
async def test_a_copy_of_a_disk_of_the_cluster_is_refused(operator: Operator, shown: str) -> None:
    operator.identities["new"] = shown
    with pytest.raises(ConfigurationError, match=f"identity of {shown[3:]}"):
        await operator.replacing("a1", "new").register()


async def test_one_server_at_two_addresses_is_refused(operator: Operator) -> None:
    operator.processes["new"] = "a2"
    with pytest.raises(ConfigurationError, match="new and a2 are one server"):
        await operator.replacing("a1", "new").register()


@pytest.mark.parametrize("away", ["a0", "a2", "new"])
async def test_whoever_is_needed_must_answer(operator: Operator, away: str) -> None:
    operator.away.add(away)
    with pytest.raises(Unavailable):
        await operator.replacing("a1", "new").register()
    assert await operator.servers() == ("a0", "a1", "a2")


async def test_a_second_server_of_the_group_waits_for_the_first(operator: Operator) -> None:
    await operator.replacing("a1", "new").register()
    operator.identities.update({"new": "of new", "other": None})
    with pytest.raises(ConfigurationError, match="without a0 there would be no majority"):
        await operator.replacing("a0", "other").register()
    for container_id in range(3):
        with pytest.raises(ConfigurationError, match="no majority"):
            await operator.replacing("a0", "other").register()
        await operator.admit(container_id, 1, "of new")
    await operator.replacing("a0", "other").register()
    assert await operator.servers() == ("other", "new", "a2")


async def test_it_is_complete_once_every_log_counts_the_new_server(operator: Operator) -> None:
    replacing = operator.replacing("a1", "new")
    await replacing.register()
    seen: list[Progress] = []
    progress = replacing.follow()
    seen.append(await anext(progress))
    operator.identities["new"] = "of new"
    assert await look(operator) == Progress((), (0, 1))
    await operator.admit(0, 1, "of new")
    assert await look(operator) == Progress((0,), (1,))
    operator.away.add("new")
    assert (await look(operator)).problem
    operator.away.clear()
    await operator.admit(1, 1, "of new")
    assert (await look(operator)).is_complete
    assert await operator.cpo.get_constant(server_identity_key("main", "a", 1)) == "of new"
    assert seen == [Progress((), (0, 1))]


async def look(operator: Operator) -> Progress:
    async for progress in operator.replacing("a1", "new").follow():
        return progress
    raise AssertionError("nothing was seen")


async def test_a_registration_that_changes_meanwhile_is_judged_again(operator: Operator) -> None:
    put: Callable[[PersistenceCluster], Awaitable[PersistenceCluster]] = operator.cpo.put_persistence_cluster
    overtaken = False

    async def overtaking(cluster: PersistenceCluster) -> PersistenceCluster:
        nonlocal overtaken
        if not overtaken:
            overtaken = True
            old = await operator.cpo.get_persistence_cluster("main")
            assert old is not None
            await put(PersistenceCluster("main", (*old.groups, PersistenceGroup("c", ("c0",))), old.version))
            raise VersionConflict("another store was faster")
        return await put(cluster)

    operator.cpo.put_persistence_cluster = overtaking  # type: ignore[method-assign]
    result = await operator.replacing("a1", "new").register()
    assert [group.servers for group in result.groups] == [("a0", "new", "a2"), ("b0",), ("c0",)]


async def test_settings_that_name_replaced_servers_are_those_of_their_successors(operator: Operator) -> None:
    for number, (old, new) in enumerate([("a1", "n0"), ("n0", "n1"), ("n1", "a1")]):
        operator.identities[new] = None
        await operator.replacing(old, new).register()
        operator.identities[new] = f"number {number}"
        for container_id in range(3):
            await operator.admit(container_id, 1, f"number {number}")
        for named in ("a1", old, new):
            wanted = [PersistenceGroup("a", ("a0", named, "a2"))]
            assert (await register_groups(operator.cpo, "main", wanted, operator.ask)).groups[0].servers[1] == new
    assert await operator.servers() == ("a0", "a1", "a2")


async def test_a_chain_of_successors_that_leads_nowhere_ends(operator: Operator) -> None:
    for number in range(successors_max + 5):
        await operator.cpo.set_once(successor_key("main", "a", f"x{number}"), f"x{number + 1}")
    await operator.cpo.set_once(successor_key("main", "a", "y"), "y")
    for named in ("x0", "y"):
        operator.identities[named] = "unknown"
        with pytest.raises(ConfigurationError, match="not the same servers"):
            wanted = [PersistenceGroup("a", ("a0", named, "a2"))]
            await register_groups(operator.cpo, "main", wanted, operator.ask)
