"""Containers with a segment that is damaged in Tier 2: it is refused and kept, and all others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
import structlog

from pravega_common.errors import DataCorruption, SegmentDamaged, SegmentNotFound
from pravega_common.wire import commands as wire
from pravega_streams.connection.replies import error_of
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.table_store import TableEntry
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.host.listener import WireServer
from segment_service.storage import compaction, garbage, orphan_sweep
from segment_service.storage.chunk_format import block_bytes
from segment_service.storage.chunk_names import Layout
from segment_service.tables.table_extension import TableExtension
from segment_service.writer.config import WriterConfig
from tests.support.containers import ContainerKit, read_all
from tests.support.eventually import eventually
from tests.support.wire_client import WireClient

RECHECK_S = 0.05
LAYOUT = Layout(0)


@pytest.fixture
def kit() -> ContainerKit:
    kit = ContainerKit(checkpoints=CheckpointPolicy(operations_max=20, bytes_max=256 * 1024))
    config = WriterConfig(flush_age_s=0.02, tick_s=0.01, retry_delay_min_s=0.01, damage_recheck_s=3600.0)
    kit.write_to_tier2(config)
    return kit


def recheck_soon(kit: ContainerKit) -> None:
    """Let the next owners look at damage again after a short time."""
    kit.config = replace(kit.config, damage_recheck_s=RECHECK_S)
    kit.write_to_tier2(WriterConfig(flush_age_s=0.02, tick_s=0.01, damage_recheck_s=RECHECK_S))


@pytest.fixture
def log() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


def objects(kit: ContainerKit, container: SegmentContainer, segment: str, prefix: str) -> list[str]:
    """The names of a segment's manifests (``m``) or chunks (``d``), oldest first."""
    found = container.metadata.by_name(segment)
    assert found is not None
    wanted = (LAYOUT.manifests_of if prefix == "m" else LAYOUT.chunks_of)(found.segment_id)
    return sorted(name for name in kit.stored.objects if name.startswith(wanted))


def flip(kit: ContainerKit, name: str, position: int) -> None:
    damaged = bytearray(kit.stored.objects[name])
    damaged[position] ^= 1
    kit.stored.objects[name] = bytes(damaged)


async def flushed(kit: ContainerKit) -> None:
    await eventually(lambda: kit.back_pressure.bytes == 0, "everything flushed")


async def opened(kit: ContainerKit) -> SegmentContainer:
    """A container with two segments that are wholly in Tier 2."""
    container = await kit.open()
    for name in ("healthy", "hurt"):
        await container.create_segment(name)
        await container.append(name, [name.encode()])
    await let_tier1_go(kit, container)
    return container


async def let_tier1_go(kit: ContainerKit, container: SegmentContainer) -> None:
    """Truncate Tier 1 until only checkpoints are left."""
    await flushed(kit)
    for _ in range(3):
        await container.durable_log.checkpoint()
        await eventually(lambda: not container.durable_log.memory_length, "everything acknowledged")


def quarantined(container: SegmentContainer) -> dict[str, str]:
    return dict(container.metadata.quarantine)


async def opened_damaged(kit: ContainerKit, container: SegmentContainer, name: str, position: int) -> SegmentContainer:
    """The next owner, which finds an object damaged, and looks at it again soon."""
    await container.stop()
    recheck_soon(kit)
    flip(kit, name, position)
    return await kit.open()


async def is_quarantined(container: SegmentContainer, segment: str) -> None:
    await eventually(lambda: segment in quarantined(container), f"{segment} is quarantined")


async def goes_on(kit: ContainerKit, container: SegmentContainer) -> None:
    """Append to the segment ``healthy``, merge into it, read it and write a checkpoint."""
    before = (await container.get_info("healthy")).length
    await container.append("healthy", [b"more"])
    await eventually(lambda: storage_length(container, "healthy") == before + 4, "the healthy segment is flushed")
    await container.create_segment(f"transaction-{before}")
    await container.append(f"transaction-{before}", [b"txn"])
    await container.merge("healthy", f"transaction-{before}")
    await eventually(lambda: storage_length(container, "healthy") == before + 7, "the merge is flushed")
    assert (await read_all(container, "healthy")).endswith(b"moretxn")
    await container.durable_log.checkpoint()
    assert container.is_running


def storage_length(container: SegmentContainer, segment: str) -> int:
    found = container.metadata.by_name(segment)
    assert found is not None
    return found.storage_length


async def refuses_changes(container: SegmentContainer) -> None:
    """Each operation on the segment ``hurt`` gives the reason."""
    if container.metadata.by_name("other") is None:
        await container.create_segment("other")
        await container.append("other", [b"x"])
    for refused in (
        container.append("hurt", [b"x"]),
        container.seal("hurt"),
        container.truncate("hurt", 1),
        container.merge("hurt", "other"),
        container.merge("other", "hurt"),
    ):
        with pytest.raises(DataCorruption, match=r"hurt is quarantined: .*restore"):
            await refused
    assert await read_all(container, "other") == b"x"


async def test_healthy_segments_go_on_through_three_starts(
    kit: ContainerKit, log: list[structlog.typing.EventDict]
) -> None:
    container = await opened(kit)
    (manifest,) = objects(kit, container, "hurt", "m")
    await container.stop()
    flip(kit, manifest, 40)
    expected = b"hurt"
    for start in range(3):
        container = await kit.open()
        await goes_on(kit, container)
        if not start:
            await container.append("hurt", [b"acked"])  # found at first sight only, which is the flush of this
            expected += b"acked"
        await is_quarantined(container, "hurt")
        assert manifest in quarantined(container)["hurt"]
        await refuses_changes(container)
        result = await container.read("hurt", 4, 10)
        assert b"".join(result.data) == b"acked", "what is cached is served"
        with pytest.raises(SegmentDamaged, match=manifest):
            await container.read("hurt", 0, 4)
        await goes_on(kit, container)
        await container.stop()
    errors = [entry for entry in log if entry["event"] == "segment is quarantined"]
    assert [entry["log_level"] for entry in errors] == ["error"] * 3, "once in each epoch"

    flip(kit, manifest, 40)
    container = await kit.open()
    await flushed(kit)
    assert not quarantined(container)
    assert await container.append("hurt", [b"!"]) == len(expected) + 1
    assert await read_all(container, "hurt") == expected + b"!"
    await container.stop()


@pytest.mark.parametrize("how", ["all manifests are gone", "an older manifest came back"])
async def test_fewer_bytes_than_there_must_be(kit: ContainerKit, how: str) -> None:
    container = await opened(kit)
    older = {name: kit.stored.objects[name] for name in objects(kit, container, "hurt", "m")}
    await container.append("hurt", [b"more"])
    await let_tier1_go(kit, container)
    await container.stop()
    newer = {name: kit.stored.objects[name] for name in objects(kit, container, "hurt", "m")}
    for name in newer:
        await kit.stored.delete_all([name])
    if how == "an older manifest came back":
        for name, data in older.items():
            await kit.stored.put(name, [data])
    container = await kit.open()
    with pytest.raises(SegmentDamaged, match=r"hurt: Tier 2 does not have bytes 4\.\.8, it must have those up to 8"):
        await container.read("hurt", 4, 4)
    await refuses_changes(container)
    await goes_on(kit, container)
    await container.stop()

    container = await kit.open()
    await container.append("hurt", [b"new"])
    await is_quarantined(container, "hurt")
    assert "segment hurt (id 2): Tier 2 has" in quarantined(container)["hurt"]
    await refuses_changes(container)
    await goes_on(kit, container)
    await container.stop()
    for name in older if how == "an older manifest came back" else ():
        await kit.stored.delete_all([name])
    for name, data in newer.items():
        await kit.stored.put(name, [data])
    container = await kit.open()
    await flushed(kit)
    assert await read_all(container, "hurt") == b"hurtmorenew"
    await container.stop()


async def test_a_read_finds_damage_and_what_is_whole_is_served(kit: ContainerKit) -> None:
    container = await opened(kit)
    data = bytes(range(256)) * 1_200
    await container.append("hurt", [data])
    await let_tier1_go(kit, container)
    chunk = objects(kit, container, "hurt", "d")[1]
    container = await opened_damaged(kit, container, chunk, block_bytes + 4 + 10)
    assert await read_all_until(container, "hurt", 4 + block_bytes) == b"hurt" + data[:block_bytes]
    with pytest.raises(SegmentDamaged, match=f"chunk {chunk}, offset {block_bytes}"):
        await container.read("hurt", 4 + block_bytes, 10)
    assert await read_all(container, "hurt", 4 + 2 * block_bytes) == data[2 * block_bytes :]
    await refuses_changes(container)
    await goes_on(kit, container)
    flip(kit, chunk, block_bytes + 4 + 10)
    await eventually(lambda: not quarantined(container), "the quarantine is lifted")
    assert await container.append("hurt", [b"!"]) == 4 + len(data) + 1
    assert await read_all(container, "hurt") == b"hurt" + data + b"!"
    await container.stop()


async def read_all_until(container: SegmentContainer, segment: str, end: int) -> bytes:
    found = b""
    while len(found) < end:
        result = await container.read(segment, len(found), end - len(found))
        found += b"".join(result.data)
    return found


async def test_a_lost_chunk_is_damage(kit: ContainerKit) -> None:
    container = await opened(kit)
    (chunk,) = objects(kit, container, "hurt", "d")
    await container.stop()
    await kit.stored.delete_all([chunk])
    container = await kit.open()
    with pytest.raises(SegmentDamaged, match=f"chunk {chunk} is missing; restore the object"):
        await container.read("hurt", 0, 4)
    await refuses_changes(container)
    await goes_on(kit, container)
    await container.stop()


async def test_tier1_keeps_what_a_quarantined_segment_has_not_in_tier2(kit: ContainerKit) -> None:
    container = await opened(kit)
    (manifest,) = objects(kit, container, "hurt", "m")
    container = await opened_damaged(kit, container, manifest, 40)
    await container.append("hurt", [b"kept"])
    await is_quarantined(container, "hurt")
    acknowledged = container.durable_log.memory_length
    for _ in range(60):
        await container.append("healthy", [b"x" * 1_000])
    await eventually(lambda: storage_length(container, "healthy") > 60_000, "the healthy segment is flushed")
    await asyncio.sleep(3 * RECHECK_S)
    assert container.durable_log.memory_length >= acknowledged + 60, "nothing behind the held operation is forgotten"
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError, match="crash"):
        await container.wait_stopped()

    container = await kit.open()
    await is_quarantined(container, "hurt")
    assert await read_all(container, "hurt", 4) == b"kept"
    flip(kit, manifest, 40)
    await eventually(lambda: not quarantined(container), "the quarantine is lifted while the container runs")
    await flushed(kit)
    await eventually(lambda: container.durable_log.memory_length < 5, "Tier 1 is let go")
    assert await container.append("hurt", [b"!"]) == 9
    assert await read_all(container, "hurt") == b"hurtkept!"
    await container.stop()


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_merge_that_was_logged_waits_for_its_source(kit: ContainerKit, is_lost: bool) -> None:
    container = await opened(kit)
    (manifest,) = objects(kit, container, "hurt", "m")
    kit.chunks.stop()
    await container.merge("healthy", "hurt")
    await container.append("healthy", [b"behind"])
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError, match="crash"):
        await container.wait_stopped()
    kit.chunks.resume()
    recheck_soon(kit)
    whole = kit.stored.objects[manifest]
    if is_lost:
        await kit.stored.delete_all([manifest])
    else:
        flip(kit, manifest, 40)

    container = await kit.open()
    await container.create_segment("other")
    await is_quarantined(container, "healthy")
    reason = r"hurt \(id 2\): Tier 2 has 0 bytes, it must have at least 4: restore" if is_lost else manifest
    with pytest.raises(SegmentDamaged, match=f"healthy is quarantined: .*{reason}"):
        await container.append("healthy", [b"x"])
    with pytest.raises(SegmentDamaged, match=reason):
        await container.read("healthy", 7, 4)
    assert await read_all_until(container, "healthy", 7) == b"healthy", "what is whole is served"
    assert await read_all(container, "healthy", 11) == b"behind"
    assert await container.append("other", [b"goes on"]) == 7
    await eventually(lambda: storage_length(container, "other") == 7, "the other segment is flushed")
    await kit.stored.delete_all([manifest])
    await kit.stored.put(manifest, [whole])
    await eventually(lambda: not quarantined(container), "the quarantine is lifted")
    await flushed(kit)
    assert await read_all(container, "healthy") == b"healthyhurtbehind"
    await container.stop()
    again = await kit.open()
    assert await read_all(again, "healthy") == b"healthyhurtbehind"
    await again.stop()


async def test_a_quarantined_segment_can_be_deleted(kit: ContainerKit) -> None:
    container = await opened(kit)
    (chunk,) = objects(kit, container, "hurt", "d")
    await container.stop()
    flip(kit, chunk, 0)
    container = await kit.open()
    with pytest.raises(SegmentDamaged):
        await container.read("hurt", 0, 4)
    await container.delete("hurt")
    await eventually(lambda: not quarantined(container), "nothing is damaged any more")
    with pytest.raises(SegmentNotFound):
        await container.get_info("hurt")
    await container.create_segment("hurt")
    assert await container.append("hurt", [b"new"]) == 3
    await container.stop()


async def test_a_quarantine_is_lifted_while_the_change_of_an_index_waits_for_tier1(
    kit: ContainerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = await opened(kit)
    (chunk,) = objects(kit, container, "hurt", "d")
    container = await opened_damaged(kit, container, chunk, 0)
    reads = asyncio.Event()

    async def wait(name: str) -> None:
        reads.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(container.event_index, "read_again", wait)
    container.metadata.unread_pairs["other"] = "a block of a run is damaged"
    await reads.wait()
    with pytest.raises(SegmentDamaged):
        await container.read("hurt", 0, 4)
    flip(kit, chunk, 0)
    await eventually(lambda: not quarantined(container), "the quarantine is lifted")
    await container.stop()


async def test_tables_of_a_damaged_segment_are_refused(kit: ContainerKit) -> None:
    container = await opened(kit)
    tables = TableExtension(container)
    for name in ("scope/whole", "scope/torn"):
        await tables.create_table(name)
        await tables.put(name, [TableEntry(b"key", b"value")])
    await let_tier1_go(kit, container)
    (chunk,) = objects(kit, container, "scope/torn", "d")
    await container.stop()
    flip(kit, chunk, 0)
    container = await kit.open()
    tables = TableExtension(container)
    with pytest.raises(SegmentDamaged, match=chunk):
        await tables.get("scope/torn", [b"key"])
    with pytest.raises(SegmentDamaged):
        await tables.put("scope/torn", [TableEntry(b"other", b"value")])
    assert (await tables.get("scope/whole", [b"key"]))[0].value == b"value"
    await tables.put("scope/whole", [TableEntry(b"other", b"value")])
    assert container.is_running
    await container.stop()


async def test_clients_get_the_reason_and_keep_their_connection(kit: ContainerKit) -> None:
    container = await opened(kit)
    await container.create_segment("other")
    hurt = container.metadata.by_name("hurt")
    assert hurt is not None
    server = WireServer(container, TableExtension(container), kit.back_pressure)
    await server.start()
    client = await WireClient.connect(server.port)
    await client.call(wire.SetupAppend(1, b"w" * 16, "hurt"), wire.AppendSetup)
    container.metadata.quarantine.hold(hurt.segment_id, "hurt", "bytes are gone")
    for number, command in enumerate(
        (
            wire.AppendBlockEnd(b"w" * 16, 3, b"abc", 1, 1, 1),
            wire.AppendBlockEnd(b"w" * 16, 3, b"abc", 1, 2, 2),
            wire.SealSegment(3, "hurt"),
            wire.TruncateSegment(4, "hurt", 1),
            wire.MergeSegments(5, "other", "hurt"),
            wire.MergeSegmentsBatch(6, "hurt", ("other",)),
        ),
        1,
    ):
        reply = await client.call(command, wire.ErrorMessage)
        assert (reply.request_id, reply.error_code) == (number, wire.DATA_CORRUPTION)
        assert reply.message == "hurt is quarantined: bytes are gone"
        error = error_of(reply, "hurt")
        assert isinstance(error, DataCorruption)
        assert not error.may_be_repeated(idempotent=True)
    read = await client.call(wire.ReadSegment("hurt", 0, 10, "", 7), wire.SegmentRead)
    assert bytes(read.data) == b"hurt", "what is whole is served"
    await client.close()
    await server.stop()
    await container.stop()


async def test_compaction_that_finds_damage_quarantines(kit: ContainerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "run_chunks_min", 4)
    container = await opened(kit)
    for _ in range(6):  # for a segment of any number
        await container.append("hurt", [b"more"])
        await flushed(kit)
    flip(kit, objects(kit, container, "hurt", "d")[1], 0)
    await container.stop()
    kit.background = True
    container = await kit.open()
    await container.append("hurt", [b"last"])
    await is_quarantined(container, "hurt")
    await refuses_changes(container)
    await goes_on(kit, container)
    await container.stop()


async def test_a_sweep_keeps_the_chunks_of_a_segment_that_lost_its_manifests(
    kit: ContainerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphan_sweep, "start_delay_s", 0.0)
    monkeypatch.setattr(garbage, "gathering_time_s", 0.0)
    container = await opened(kit)
    await container.create_segment("part")
    await container.append("part", [b"merged"])
    await flushed(kit)
    await container.merge("hurt", "part")
    await let_tier1_go(kit, container)
    lost = {name: kit.stored.objects[name] for name in objects(kit, container, "hurt", "m")}
    chunks = {name for name in kit.stored.objects if "/d/" in name}
    await container.stop()
    for name in lost:
        await kit.stored.delete_all([name])
    kit.background = True
    container = await kit.open()
    await is_quarantined(container, "hurt")
    assert "must have at least 10: restore its manifests" in quarantined(container)["hurt"]
    await goes_on(kit, container)
    assert chunks <= kit.stored.objects.keys()
    await container.stop()
    for name, data in lost.items():
        await kit.stored.put(name, [data])
    container = await kit.open()
    assert await read_all(container, "hurt") == b"hurtmerged"
    await container.stop()


async def test_more_bytes_than_the_log_has_still_stop_the_container(kit: ContainerKit) -> None:
    """It is the log that is wrong then."""
    container = await opened(kit)
    segment = container.metadata.by_name("hurt")
    assert segment is not None
    await container._storage.write(segment.segment_id, 4, [b"unknown to the log"])  # private: past the writer
    await container.stop()
    container = await kit.open()
    await container.append("hurt", [b"x"])
    with pytest.raises(DataCorruption, match="at most"):
        await container.wait_stopped()
