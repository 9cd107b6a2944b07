"""The container that a request goes to, and the number of containers of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import ConfigurationError, ContainerNotHosted, InvalidArgument
from pravega_common.hashing import container_of_segment
from segment_service.container.registry import ContainerRegistry
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.store import RoutedSegmentStore, check_container_count
from tests.support.containers import ContainerKit
from tests.support.fakes.cpo import InMemoryCPO

CONTAINERS = 4


class Stores:
    def __init__(self) -> None:
        self.registry = ContainerRegistry()
        self.is_stale = False
        self.store = RoutedSegmentStore(self.registry, CONTAINERS, lambda: self.is_stale)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    """Container 3 runs elsewhere."""
    stores, kit = Stores(), ContainerKit()
    for container_id in range(CONTAINERS - 1):
        stores.registry.add(await kit.open(container_id))
    yield stores
    for container in stores.registry:
        await container.stop()


def name_in(container_id: int, stream: str = "stream") -> str:
    return next(
        name
        for number in range(1_000)
        if container_of_segment(name := f"scope/{stream}/{number}.#epoch.0", CONTAINERS) == container_id
    )


async def test_every_call_reaches_the_container_of_its_segment(stores: Stores) -> None:
    for container_id in range(CONTAINERS - 1):
        name = name_in(container_id)
        await stores.store.create_segment(name)
        assert await stores.store.append(name, [b"data"]) == 4
        assert stores.registry.get(container_id).metadata.by_name(name) is not None
        assert (await stores.store.read(name, 0, 10)).length == 4
        await stores.store.truncate(name, 1)
        await stores.store.update_attributes(name, [])
        assert await stores.store.seal(name) == 4
        assert (await stores.store.get_info(name)).is_sealed
        await stores.store.delete(name)


async def test_a_transaction_is_where_its_parent_is(stores: Stores) -> None:
    name = name_in(1)
    transaction = f"{name}#transaction.{'0' * 31}1"
    await stores.store.create_segment(name)
    await stores.store.create_segment(transaction)
    await stores.store.append(transaction, [b"abc"])
    assert (await stores.store.merge(name, transaction)).target_length == 3
    with pytest.raises(InvalidArgument, match="different containers"):
        await stores.store.merge(name, name_in(2))


async def test_what_runs_elsewhere_is_refused(stores: Stores) -> None:
    name = name_in(CONTAINERS - 1)
    for call in (
        stores.store.create_segment(name),
        stores.store.append(name, [b"x"]),
        stores.store.read(name, 0, 1),
        stores.store.get_info(name),
    ):
        with pytest.raises(ContainerNotHosted) as raised:
            await call
        assert raised.value.container_id == CONTAINERS - 1
    with pytest.raises(ContainerNotHosted):
        stores.store.state_in_memory(name)


async def test_a_store_that_lost_its_lease_long_ago_hosts_nothing(stores: Stores) -> None:
    name = name_in(0)
    await stores.store.create_segment(name)
    stores.is_stale = True
    with pytest.raises(ContainerNotHosted):
        await stores.store.get_info(name)
    with pytest.raises(ContainerNotHosted):
        stores.store.state_in_memory(name)
    with pytest.raises(ContainerNotHosted):
        await stores.store.append(name, [b"x"])


async def test_the_number_of_containers_is_fixed_at_the_first_start() -> None:
    cpo, chunks = InMemoryCPO(), InMemoryChunkStorage()
    await check_container_count(cpo, chunks, 4, "first")
    await check_container_count(cpo, chunks, 4, "second")
    with pytest.raises(ConfigurationError, match=r"8.*made with 4"):
        await check_container_count(cpo, chunks, 8, "third")
    with pytest.raises(ConfigurationError, match="Tier 2 was made with 4"):
        await check_container_count(InMemoryCPO(), chunks, 8, "fourth")
    await check_container_count(cpo, InMemoryChunkStorage(), 4, "fifth")
