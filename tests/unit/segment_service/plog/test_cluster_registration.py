"""Registration of persistence groups: what is added, what stays, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from pravega_common.errors import ConfigurationError, Unavailable
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.plog.cluster_registration import ServerFacts, register_groups, server_identity_key
from tests.support.fakes.cpo import InMemoryCPO


def group(name: str, *servers: str) -> PersistenceGroup:
    return PersistenceGroup(name, servers)


async def register(
    cpo: InMemoryCPO, groups: Sequence[PersistenceGroup], identities: Mapping[str, str] | None = None, **others: str
) -> PersistenceCluster:
    """Every address is a server of its own, ``others`` apart; ``""`` is one that does not answer."""

    async def ask(address: str) -> ServerFacts:
        process = others.get(address, address)
        if not process:
            raise Unavailable(f"Redis at {address} is not reachable")
        return ServerFacts(process, (identities or {}).get(address))

    return await register_groups(cpo, "main", groups, ask)


async def test_a_new_cluster_and_new_groups_are_registered() -> None:
    cpo = InMemoryCPO()
    a, b = group("a", "a1", "a2", "a3"), group("b", "b1")
    assert await register(cpo, [b]) == PersistenceCluster("main", (b,), 1)
    assert await register(cpo, [b, a]) == PersistenceCluster("main", (a, b), 2)
    assert await register(cpo, [a]) == PersistenceCluster("main", (a, b), 2), "a group is never dropped"
    assert await register(cpo, [group("a", "a3", "a1", "a2")]) == PersistenceCluster("main", (a, b), 2), "another order"


async def test_a_registered_group_is_never_changed() -> None:
    cpo = InMemoryCPO()
    await register(cpo, [group("a", "a1", "a2", "a3")])
    await cpo.set_once(server_identity_key("main", "a", 2), "third")
    with pytest.raises(ConfigurationError, match=r"registered with a1, a2, a3, the settings say a1, a2, a4"):
        await register(cpo, [group("a", "a1", "a2", "a4"), group("b", "b1")])
    assert await cpo.get_persistence_cluster("main") == PersistenceCluster("main", (group("a", "a1", "a2", "a3"),), 1)


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([group("b", "b1", "b2")], "b has 2 servers"),
        ([group("b", "b1", "b1", "b2")], "b1 is listed 2 times"),
        ([group("b", "a1")], "registered in group a"),
        ([group("b", "b1", "also_b1", "b3")], "b1 and also_b1 are one server"),
        ([group("b", "also_a1")], "a1 and also_a1 are one server"),
    ],
)
async def test_groups_without_servers_of_their_own_are_refused(groups: list[PersistenceGroup], text: str) -> None:
    cpo = InMemoryCPO()
    before = await register(cpo, [group("a", "a1")])
    with pytest.raises(ConfigurationError, match=text):
        await register(cpo, groups, also_b1="b1", also_a1="a1")
    assert await cpo.get_persistence_cluster("main") == before


async def test_a_new_group_needs_all_its_servers_and_an_old_one_none() -> None:
    cpo = InMemoryCPO()
    groups = [group("a", "a1", "a2", "a3")]
    with pytest.raises(Unavailable, match="a cannot be registered yet: Redis at a2"):
        await register(cpo, groups, a2="")
    await register(cpo, groups)
    await register(cpo, groups, a1="", a2="", a3="")
    assert (await register(cpo, [*groups, group("b", "b1")], a1="")).version == 2


async def test_stores_that_start_at_once_add_all_groups() -> None:
    cpo = InMemoryCPO()
    groups = [group(f"g{number}", f"s{number}") for number in range(8)]
    await asyncio.gather(*(register(cpo, [one]) for one in groups))
    registered = await cpo.get_persistence_cluster("main")
    assert registered == PersistenceCluster("main", tuple(groups), 8)


async def test_what_0_1_0_registered_stays() -> None:
    cpo = InMemoryCPO()
    cpo._clusters["main"] = '{"groups":{"group-0":["a1"]},"name":"main"}'
    assert await register(cpo, [group("group-0", "a1")]) == PersistenceCluster("main", (group("group-0", "a1"),), 1)
    assert (await register(cpo, [group("b", "b1")])).version == 2


async def test_a_server_that_moved_is_known_by_its_identity() -> None:
    cpo = InMemoryCPO()
    await register(cpo, [group("a", "a1", "a2", "a3")])
    await cpo.set_once(CONTAINER_COUNT_KEY, "2")
    await cpo.set_once(server_identity_key("main", "a", 0), "first")
    await cpo.set_once(f"{server_identity_key('main', 'a', 1)}/1", "second")
    await cpo.set_once(f"{server_identity_key('main', 'a', 2)}/0", "third")
    shown = {"new1": "first", "new2": "second", "new3": "other"}
    for settings in (("a3", "new1", "a1"), ("new1", "new2", "new3"), ("new1", "new2", "a1"), ("a1", "a2", "unused")):
        with pytest.raises(ConfigurationError, match="not the same servers at other addresses"):
            await register(cpo, [group("a", *settings)], shown)
    with pytest.raises(Unavailable):
        await register(cpo, [group("a", "new1", "a2", "a3")], shown, new1="")
    moved = await register(cpo, [group("a", "new2", "a3", "new1")], shown)
    assert moved == PersistenceCluster("main", (group("a", "new1", "new2", "a3"),), 2), "each at its place"


async def test_a_server_without_plogs_may_be_another_one() -> None:
    cpo = InMemoryCPO()
    await register(cpo, [group("a", "a1")])
    assert await register(cpo, [group("a", "b1")]) == PersistenceCluster("main", (group("a", "b1"),), 2)
    with pytest.raises(ConfigurationError, match="registered with b1"):
        await register(cpo, [group("a", "c1")], {"c1": "of another cluster"})
