"""The maps of large tables over a real container: restarts of it, and the end of a table."""

from __future__ import annotations

import pytest

from pravega_common.runtime import failpoints
from segment_service.contracts.table_store import TableEntry
from segment_service.sorted_runs.sorted_run_map import RUN_STORED
from segment_service.tables import paged_index, paging
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.table_extension import TableExtension
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually

T = "scope/table"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "keys_in_memory_max", 5)
    monkeypatch.setattr(paged_index, "flush_keys", 4)


async def test_an_index_follows_its_container_and_ends_with_its_table() -> None:
    kit = ContainerKit()
    kit.write_to_tier2()
    container = await kit.open()
    tables = TableExtension(container, maps=container)
    await tables.create_table(T)
    for number in range(40):
        await tables.put(T, [TableEntry(b"%d" % number, b"v")])
    await container.stop()
    container = await kit.open()
    tables = TableExtension(container, maps=container)
    assert (await tables.table_info(T)).entry_count == 40
    index = tables._tables[T].index
    assert isinstance(index, PagedKeyIndex)
    assert index.covered > 0
    assert container._maps.sorted_map("keys-0000000000000001") is container._maps.sorted_map("keys-0000000000000001")
    assert await container._maps.map_names("keys-") == ["keys-0000000000000001"]
    await tables.put(T, [TableEntry(b"one more", b"v")])
    await tables.delete_table(T, must_be_empty=False)

    async def removed() -> bool:
        await container.durable_log.barrier()
        await container._storage.garbage.collect()  # type: ignore[attr-defined]  # a rolling storage
        return not await container._maps.map_names("keys-")

    await eventually(removed)
    await container.stop()


async def test_a_sweep_keeps_the_maps_of_segments_that_are_in_memory_or_not() -> None:
    kit = ContainerKit()
    container = await kit.open()
    tables = TableExtension(container, maps=container)
    await tables.create_table(T)
    for number in range(40):
        await tables.put(T, [TableEntry(b"%d" % number, b"v")])
    assert await container.table_maps.sweep() == 0
    await container.table.flush()
    found = container.metadata.segments.pop(1)
    assert await container.table_maps.sweep() == 0
    container.metadata.segments[1] = found
    await container.stop()


async def test_files_that_no_manifest_ever_listed_go_with_the_table() -> None:
    kit = ContainerKit()
    kit.write_to_tier2()
    container = await kit.open()
    tables = TableExtension(container, maps=container)
    await tables.create_table(T)

    def interrupt() -> None:
        raise failpoints.FailpointError(RUN_STORED)

    failpoints.arm(RUN_STORED, interrupt)
    for number in range(40):
        await tables.put(T, [TableEntry(b"%d" % number, b"v")])
    await eventually(lambda: any("/keys-" in name for name in kit.stored.objects), "a file")
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()
    failpoints.disarm_all()
    assert [name for name in kit.stored.objects if "/keys-" in name and "/r/" in name]
    assert not [name for name in kit.stored.objects if "/keys-" in name and "/m/" in name]
    container = await kit.open()
    await container.delete(T)

    async def removed() -> bool:
        await container.durable_log.barrier()
        await container._storage.garbage.collect()  # type: ignore[attr-defined]  # a rolling storage
        return not [name for name in kit.stored.objects if "/keys-" in name]

    await eventually(removed, "the end of the files")
    await container.stop()
