"""A log that was lost, came back older or belongs elsewhere is refused before anything is acknowledged or deleted.

Before the identity of logs, an older copy of Tier 1 gave reads of mixed bytes (A+C from the cache, A and parts of B and
C after eviction), and an emptied one ended after some failed starts in a healthy container that served the bytes of
another segment.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from pravega_common.errors import ContainerOffline, DataCorruption, Fenced, PravegaError, UnknownOutcome
from segment_service.container.log_verification import find_contradiction
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.log_identity import unknown_identity
from segment_service.contracts.segment_storage import EpochMark, LogState
from segment_service.durable_log.recovery import Recovered
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.storage.chunk_names import Layout
from segment_service.storage.epoch_marks import decode_mark, encode_mark
from segment_service.writer.config import WriterConfig
from tests.support.containers import ContainerKit, IdleWriter, read_all
from tests.support.eventually import eventually

starts = 6
"""Starts in a row; once the fourth one of an emptied log succeeded, as its epoch passed that of the mark."""


@pytest.fixture
def kit() -> ContainerKit:
    kit = ContainerKit()
    kit.write_to_tier2()
    return kit


async def flushed(container: SegmentContainer, segment: str) -> None:
    found = container.metadata.by_name(segment)
    assert found is not None
    await eventually(lambda: found.storage_length == found.length, "a flush")


async def append(container: SegmentContainer, segment: str, data: bytes) -> None:
    await container.append(segment, [data])
    await flushed(container, segment)


async def crash(container: SegmentContainer) -> None:
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()


def manifests(kit: ContainerKit) -> list[str]:
    return sorted(name for name in kit.stored.objects if "/m/" in name)


async def forget_marks(kit: ContainerKit) -> None:
    """Take the high water off the marks: programs of before left none for each change of Tier 2."""
    for name in [name for name in kit.stored.objects if name.startswith(Layout(0).epochs)]:
        found = decode_mark(kit.stored.objects[name], name, Layout(0).parse_epoch(name))
        await kit.stored.delete_all([name])
        if found.log is not None:
            known = replace(found.log, high_water=1, next_segment_id=1)
            await kit.stored.put(name, [encode_mark(replace(found, log=known))])


async def objects(kit: ContainerKit) -> list[str]:
    return [info.name async for info in kit.chunks.list("")]


async def assert_refused(kit: ContainerKit, message: str) -> None:
    """Every start ends in the same named error, and changes nothing in the log and in Tier 2."""
    before = await objects(kit), kit.logs.entries(0)
    for _ in range(starts):
        container = kit.make()
        with pytest.raises(DataCorruption, match=message):
            await container.start()
        with pytest.raises(ContainerOffline):
            await container.append("s", [b"C"])
    assert (await objects(kit), kit.logs.entries(0)) == before


async def test_an_emptied_log_is_refused(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    await append(container, "s", b"old bytes")
    await container.stop()
    for _ in range(2):
        await (await kit.open()).stop()
    kit.logs.restore(0)
    await assert_refused(kit, "Tier 1 was lost: the log is empty, but Tier 2 has a mark of epoch 3")


async def test_a_log_that_was_emptied_before_anything_was_written_is_refused_too(kit: ContainerKit) -> None:
    await (await kit.open()).stop()
    kit.logs.restore(0)
    await assert_refused(kit, "Tier 1 was lost")


async def test_an_empty_log_beside_chunks_without_a_mark_is_refused(kit: ContainerKit) -> None:
    await kit.chunks.put(f"{Layout(0).chunks_of(1)}{1:016x}-{2:016x}", [b"bytes of somebody"])
    await assert_refused(kit, "Tier 1 was lost: the log is empty, but Tier 2 has c00000/d/")


@pytest.mark.parametrize("way", ["append", "seal", "truncate", "merge", "delete"])
async def test_an_older_copy_of_the_log_is_refused(kit: ContainerKit, way: str) -> None:
    """However young it is: the last operation that is missing from it shows in Tier 2, and so does a mark."""
    container = await kit.open()
    for segment in ("s", "t"):
        await container.create_segment(segment)
        await append(container, segment, b"A")
    copy = kit.logs.backup(0)
    before = manifests(kit)
    if way == "append":
        await container.append("s", [b"B"])
    elif way == "seal":
        await container.seal("s")
    elif way == "truncate":
        await container.truncate("s", 1)
    elif way == "merge":
        await container.merge("s", "t")
    else:
        await container.delete("s")
    await eventually(lambda: manifests(kit) != before, "the effect in Tier 2")
    await crash(container)
    kit.logs.restore(0, copy)
    await assert_refused(kit, "an older copy of Tier 1 came back: the log ends at operation")


@pytest.mark.parametrize("away", ["nothing", "Tier 2", "the control plane", "both"])
async def test_a_loss_that_one_owner_found_is_refused_by_the_next(kit: ContainerKit, away: str) -> None:
    """Nothing of it is in Tier 2, so nothing else shows it: the owner notes what was durable where it can."""
    kit.write_to_tier2(WriterConfig(flush_age_s=3_600.0))
    container = await kit.open()
    await container.create_segment("s")
    copy = kit.logs.backup(0)
    await container.append("s", [b"A"])
    lost = UnknownOutcome("container 0: no copy has the entry at 1, below 2")
    lost.__cause__ = DataCorruption("no copy has the entry at 1, below 2")
    if away in ("Tier 2", "both"):
        kit.chunks.stop()
    kit.logs.are_notes_away = away in ("the control plane", "both")
    container.fail(lost)
    with pytest.raises(UnknownOutcome):
        await container.wait_stopped()
    kit.chunks.resume()
    kit.logs.restore(0, copy)
    if away == "both":
        again = await kit.open()
        assert (await again.get_info("s")).length == 0
        await again.stop()
    elif away == "the control plane":
        await assert_refused(kit, "an older copy of Tier 1 came back: the log ends at operation")
    else:
        await assert_refused(kit, "frames had been acknowledged before some were found lost")


async def test_a_log_from_before_the_last_owner_is_refused(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    await append(container, "s", b"A")
    copy = kit.logs.backup(0)
    await container.stop()
    await (await kit.open()).stop()
    kit.logs.restore(0, copy)
    await assert_refused(kit, "an older copy of Tier 1 came back")


@pytest.mark.parametrize("way", ["append", "merge", "seal"])
async def test_tier2_ahead_of_the_recovered_log_is_found_at_first_sight(kit: ContainerKit, way: str) -> None:
    """Where no mark knows more the segment itself shows it, however much it grew since."""
    container = await kit.open()
    await container.create_segment("s")
    await append(container, "s", b"A")
    copy = kit.logs.backup(0)
    await append(container, "s", b"BBBB")
    await crash(container)
    kit.logs.restore(0, copy)
    await forget_marks(kit)
    container = await kit.open()
    with contextlib.suppress(ContainerOffline, UnknownOutcome):  # a step may find the container gone already
        if way == "append":
            await container.append("s", [b"C" * 100])
        elif way == "merge":
            await container.create_segment("t")
            await container.append("t", [b"C" * 100])
            await container.merge("s", "t")
        else:
            await container.seal("s")
    with pytest.raises(DataCorruption, match=r"segment s .*Tier 2 has 5 bytes, .* at most 1: the log is an older copy"):
        await asyncio.wait_for(container.wait_stopped(), 5)
    assert len([name for name in await objects(kit) if "/d/" in name]) >= 2, "nothing is deleted"


async def test_a_new_segment_must_find_nothing_under_its_id(kit: ContainerKit) -> None:
    container = await kit.open()
    copy = kit.logs.backup(0)
    await container.create_segment("old")
    await append(container, "old", b"old bytes")
    await crash(container)
    kit.logs.restore(0, copy)
    await forget_marks(kit)
    container = await kit.open()
    await container.create_segment("new")
    await container.append("new", [b"C"])
    with pytest.raises(DataCorruption, match=r"segment new \(id 1\): Tier 2 has 9 bytes"):
        await asyncio.wait_for(container.wait_stopped(), 5)


async def test_a_merge_into_a_new_segment_finds_what_is_under_its_id(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("source")
    await append(container, "source", b"bytes")
    copy = kit.logs.backup(0)
    await container.create_segment("old")
    await append(container, "old", b"very old bytes")
    await crash(container)
    kit.logs.restore(0, copy)
    await forget_marks(kit)
    container = await kit.open()
    await container.create_segment("new")
    await container.merge("new", "source")
    with pytest.raises(DataCorruption, match=r"segment new \(id 2\): Tier 2 has 14 bytes"):
        await asyncio.wait_for(container.wait_stopped(), 5)


async def test_the_log_of_another_container_is_refused(kit: ContainerKit) -> None:
    for container_id in (0, 1):
        container = await kit.open(container_id)
        await container.create_segment("s")
        await container.stop()
    kit.logs.restore(0, kit.logs.backup(1))
    await assert_refused(kit, "checkpoint of container 1 in its log")


async def test_the_log_of_another_cluster_is_refused(kit: ContainerKit) -> None:
    other = ContainerKit()
    for one in (kit, other):
        container = await one.open()
        await container.create_segment("s")
        await container.stop()
    kit.logs.restore(0, other.logs.backup(0))
    await assert_refused(kit, "another log came back: its identity is")


async def test_epochs_that_went_back_are_raised_at_once(kit: ContainerKit) -> None:
    """The log is whole, only the epochs were forgotten: no name in Tier 2 is used twice."""
    for _ in range(4):
        container = await kit.open()
    await container.create_segment("s")
    await append(container, "s", b"A")
    await container.stop()
    kit.logs.container(0).epoch = 2
    container = await kit.open()
    assert container.epoch == 5
    await append(container, "s", b"B")
    assert await read_all(container, "s") == b"AB"
    await container.stop()


async def test_a_later_owner_is_no_contradiction(kit: ContainerKit) -> None:
    """Between the recovery of one owner and its look at Tier 2, another one started and left its mark."""
    slow = kit.make()
    verify = slow._verify  # private: stopped in front of it

    async def late() -> None:
        await (await kit.open()).stop()
        await verify()

    slow._verify = late  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        await slow.start()
    await (await kit.open()).stop()


async def test_a_container_keeps_its_identity(kit: ContainerKit) -> None:
    identities = []
    for _ in range(3):
        container = await kit.open()
        identities.append(container.metadata.identity)
        await container.stop()
    assert len(set(identities)) == 1 and identities[0] != unknown_identity
    mark = await kit.make()._storage.newest_mark()
    assert mark is not None and mark.log is not None and mark.log.identity == identities[0]


async def test_a_mark_has_no_identity_that_the_log_has_not_got_yet(kit: ContainerKit) -> None:
    """A log of before identities is taken over while Tier 1 is full, and the owner dies before its checkpoint."""
    config = kit.config
    kit.config = replace(config, new_identity=lambda: unknown_identity)
    container = await kit.open()
    await container.create_segment("s")
    await append(container, "s", b"A")
    await crash(container)
    kit.config = config
    kit.writer_factory = IdleWriter
    kit.logs.faults.capacity_bytes = sum(len(entry.payload) for entry in kit.logs.entries(0))
    container = kit.make()
    start = asyncio.ensure_future(container.start())
    await eventually(lambda: "is being written" in container.waits_for, "Tier 2 is open")
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await start
    kit.logs.faults.capacity_bytes = 0
    kit.write_to_tier2()
    container = await kit.open()
    assert await read_all(container, "s") == b"A"
    await container.stop()
    await (await kit.open()).stop()


async def test_a_start_waits_for_tier2_and_can_be_stopped(kit: ContainerKit) -> None:
    """Requests are taken once Tier 2 has answered, since only it tells whether this log is the right one."""
    await (await kit.open()).stop()
    kit.chunks.stop()
    container = kit.make()
    start = asyncio.ensure_future(container.start())
    await eventually(lambda: container.waits_for.startswith("Tier 2: "), "the container says what it waits for")
    with pytest.raises(ContainerOffline):
        await container.append("s", [b"A"])
    await container.stop()
    with pytest.raises(PravegaError, match="stopped while it started"):
        await start
    container = kit.make()
    start = asyncio.ensure_future(container.start())
    await eventually(lambda: bool(container.waits_for), "the container waits")
    kit.chunks.resume()
    await start
    assert container.waits_for == ""
    await container.create_segment("s")
    await container.stop()


KNOWN = LogState(bytes(range(16)), 100, 9)
METADATA = ContainerMetadata(3, next_segment_id=9, identity=KNOWN.identity)
LOG = Recovered(operations=5, last_sequence_number=100, last_epoch=4)


@pytest.mark.parametrize(
    ("metadata", "mark", "message"),
    [
        (METADATA, None, ""),
        (METADATA, EpochMark(4, KNOWN), ""),
        (METADATA, EpochMark(9, KNOWN), ""),
        (METADATA, EpochMark(4, replace(KNOWN, identity=unknown_identity)), ""),
        (METADATA, EpochMark(4, None), ""),
        (replace(METADATA, identity=unknown_identity), EpochMark(4, None), ""),
        (METADATA, EpochMark(5, None), "ends in epoch 4, but Tier 2 was opened in epoch 5"),
        (METADATA, EpochMark(4, replace(KNOWN, high_water=101)), "ends at operation 100, .*operation 101 was durable"),
        (METADATA, EpochMark(4, replace(KNOWN, next_segment_id=10)), "next segment of the log gets id 9"),
        (METADATA, EpochMark(4, replace(KNOWN, identity=bytes(range(1, 17)))), "another log came back"),
        (replace(METADATA, identity=unknown_identity), EpochMark(4, KNOWN), "the log has no identity yet"),
    ],
)
def test_what_contradicts(metadata: ContainerMetadata, mark: EpochMark | None, message: str) -> None:
    problem = find_contradiction(metadata, LOG, mark, "")
    if not message:
        assert problem is None
        return
    assert problem is not None
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(problem)
    assert "container 3" in problem and "Nothing was written" in problem


def test_a_mark_from_before_the_first_operation_contradicts_no_log() -> None:
    """Its owner stored it while Tier 1 was full, and had acknowledged nothing."""
    mark = EpochMark(1, LogState(KNOWN.identity, 0, 1))
    assert find_contradiction(ContainerMetadata(3), Recovered(), mark, "c00003/e/1") is None
    other = replace(METADATA, identity=bytes(range(1, 17)))
    assert find_contradiction(other, LOG, mark, "") is None, "the next owner had an identity of its own"
    problem = find_contradiction(ContainerMetadata(3), Recovered(), EpochMark(1, LogState(KNOWN.identity, 1, 1)), "")
    assert problem is not None and "Tier 1 was lost" in problem


async def test_a_damaged_mark_stops_the_container(kit: ContainerKit) -> None:
    await (await kit.open()).stop()
    damaged = bytearray(encode_mark(EpochMark(2, KNOWN)))
    damaged[20] ^= 1
    await kit.chunks.put(Layout(0).epoch(2, 1), [bytes(damaged)])
    with pytest.raises(DataCorruption, match="fails its checksum"):
        await kit.open()
