"""Checks the promises of a segment store on one container with the in-memory log, across restarts and faults."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import (
    BadAttributeUpdate,
    BadOffset,
    ContainerOffline,
    DataCorruption,
    Fenced,
    InvalidArgument,
    SegmentExists,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
    UnknownOutcome,
)
from pravega_common.runtime import failpoints
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import (
    CREATION_TIME,
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.segment_store import MergeResult, append_bytes_max
from segment_service.durable_log import durable_log, operation_processor
from tests.support.containers import ContainerKit, join, read_all
from tests.support.fakes.data_log import AppendFault

WRITER = AttributeId(b"writer-number-01")


def advance(old: int, new: int) -> list[AttributeUpdate]:
    """Returns the updates of a writer's append: compare-and-set of its last event number, and one more event."""
    return [
        AttributeUpdate(WRITER, AttributeUpdateType.REPLACE_IF_EQUALS, new, old),
        AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 1),
    ]


@pytest.fixture
async def kit() -> AsyncIterator[ContainerKit]:
    yield ContainerKit()
    failpoints.disarm_all()


@pytest.fixture
async def container(kit: ContainerKit) -> AsyncIterator[SegmentContainer]:
    container = await kit.open()
    yield container
    await container.stop()


async def crash(container: SegmentContainer) -> None:
    """Let the container fail in the middle of what it does."""
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError, match="crash"):
        await container.wait_stopped()


class TestSegments:
    async def test_appends_in_flight_land_in_call_order(self, container: SegmentContainer) -> None:
        await container.create_segment("s/a/0")
        futures = [container.append("s/a/0", [b"%03d" % number, memoryview(b"!")]) for number in range(500)]
        assert await asyncio.gather(*futures) == [4 * (number + 1) for number in range(500)]
        assert await read_all(container, "s/a/0") == b"".join(b"%03d!" % number for number in range(500))

    async def test_calls_take_effect_in_the_order_in_which_they_were_made(
        self, kit: ContainerKit, container: SegmentContainer
    ) -> None:
        """Names are resolved in queue order: nothing needs to be durable in between."""
        kit.logs.faults.hold()
        calls: list[asyncio.Future[object]] = []
        for call in (
            lambda: container.create_segment("s"),
            lambda: container.append("s", [b"old"]),
            lambda: container.delete("s"),
            lambda: container.append("s", [b"lost"]),
            lambda: container.create_segment("s"),
            lambda: container.append("s", [b"new!"]),
            lambda: container.seal("s"),
            lambda: container.append("s", [b"late"]),
        ):
            calls.append(asyncio.ensure_future(call()))
            await asyncio.sleep(0)
        kit.logs.faults.release()
        outcome = await asyncio.gather(*calls, return_exceptions=True)
        assert outcome[1] == 3
        assert isinstance(outcome[3], SegmentNotFound)
        assert outcome[5] == 4 and outcome[6] == 4
        assert isinstance(outcome[7], SegmentSealed)
        assert await read_all(container, "s") == b"new!"

    async def test_a_large_append_spans_frames(self, container: SegmentContainer) -> None:
        data = bytes(range(256)) * (5 * 4096)
        await container.create_segment("s")
        assert await container.append("s", [data[:1000], data[1000:]]) == len(data)
        assert await read_all(container, "s") == data

    async def test_an_append_beyond_the_limit_is_refused(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        with pytest.raises(InvalidArgument, match=str(append_bytes_max)):
            await container.append("s", [bytes(append_bytes_max), b"x"])
        assert (await container.get_info("s")).length == 0

    async def test_create_twice(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        with pytest.raises(SegmentExists):
            await container.create_segment("s")

    async def test_a_missing_segment(self, container: SegmentContainer) -> None:
        for call in (
            container.append("x", [b"1"]),
            container.read("x", 0, 1),
            container.get_info("x"),
            container.get_attribute("x", WRITER),
            container.update_attributes("x", []),
            container.seal("x"),
            container.truncate("x", 0),
            container.delete("x"),
            container.merge("x", "y"),
        ):
            with pytest.raises(SegmentNotFound) as raised:
                await call
            assert raised.value.segment == "x"

    async def test_conditional_append(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        assert await container.append("s", [b"12345"], expected_offset=0) == 5
        with pytest.raises(BadOffset) as raised:
            await container.append("s", [b"6"], expected_offset=4)
        assert raised.value.expected_offset == 5
        with pytest.raises(BadAttributeUpdate):
            await container.append("s", [b"6"], advance(1, 2), expected_offset=4)

    async def test_tail_read_waits_for_data(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        waiting = asyncio.ensure_future(container.read("s", 0, 100))
        await asyncio.sleep(0)
        assert not waiting.done()
        await container.append("s", [b"hello"])
        result = await waiting
        assert join(result.data) == b"hello" and result.at_tail

    async def test_tail_read_ends_with_the_seal(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        waiting = asyncio.ensure_future(container.read("s", 0, 100))
        await asyncio.sleep(0)
        await container.seal("s")
        with pytest.raises(SegmentSealed):
            await waiting
        assert (await container.read("s", 0, 100)).end_of_segment

    async def test_seal(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        await container.append("s", [b"abc"])
        assert await container.seal("s") == 3
        for call in (container.append("s", [b"d"]), container.seal("s"), container.update_attributes("s", [])):
            with pytest.raises(SegmentSealed):
                await call
        await container.truncate("s", 2)
        assert (await container.get_info("s")).is_sealed

    async def test_truncate(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        await container.append("s", [b"0123456789"])
        await container.truncate("s", 4)
        await container.truncate("s", 4)
        for offset in (3, 11):
            with pytest.raises(SegmentTruncated) as raised:
                await container.truncate("s", offset)
            assert raised.value.start_offset == 4
        with pytest.raises(SegmentTruncated):
            await container.read("s", 3, 1)
        assert join((await container.read("s", 4, 100)).data) == b"456789"

    async def test_attributes(self, container: SegmentContainer) -> None:
        await container.create_segment("s", [AttributeUpdate(WRITER, AttributeUpdateType.NONE, 5)])
        assert await container.get_attribute("s", WRITER) == 5
        assert await container.get_attribute("s", EVENT_COUNT) == NULL_ATTRIBUTE_VALUE
        assert await container.get_attribute("s", CREATION_TIME) > 0
        with pytest.raises(BadAttributeUpdate) as raised:
            await container.update_attributes("s", advance(4, 6))
        assert raised.value.current == 5
        await container.update_attributes("s", advance(5, 6))
        assert (await container.get_info("s")).attributes[EVENT_COUNT] == 1
        await container.update_attributes(
            "s", [AttributeUpdate(WRITER, AttributeUpdateType.REPLACE, NULL_ATTRIBUTE_VALUE)]
        )
        assert WRITER not in (await container.get_info("s")).attributes

    async def test_compare_and_set_with_many_appends_in_flight(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        numbers = [NULL_ATTRIBUTE_VALUE, *range(1, 100)]
        futures = [container.append("s", [b"x"], advance(old, new)) for old, new in itertools.pairwise(numbers)]
        stale = container.append("s", [b"x"], advance(50, 51))
        await asyncio.gather(*futures)
        with pytest.raises(BadAttributeUpdate):
            await stale
        assert await container.get_attribute("s", EVENT_COUNT) == 99
        assert (await container.get_info("s")).length == 99


class TestMerge:
    async def test_merge_seals_moves_and_forgets(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        await container.create_segment("s#transaction.1")
        await container.append("s", [b"head-"])
        await container.append("s#transaction.1", [b"body"])
        waiting = asyncio.ensure_future(container.read("s", 5, 100))
        await asyncio.sleep(0)
        result = await container.merge("s", "s#transaction.1", advance(NULL_ATTRIBUTE_VALUE, 1))
        assert result == MergeResult(9, 4)
        assert join((await waiting).data) == b"body"
        assert await read_all(container, "s") == b"head-body"
        with pytest.raises(SegmentNotFound):
            await container.get_info("s#transaction.1")
        assert await container.get_attribute("s", EVENT_COUNT) == 1
        assert await container.append("s", [b"!"]) == 10

    async def test_refused_merges_leave_the_source_open(self, container: SegmentContainer) -> None:
        for name in ("s", "sealed", "source", "cut"):
            await container.create_segment(name)
        await container.seal("sealed")
        await container.append("cut", [b"abc"])
        await container.truncate("cut", 1)
        with pytest.raises(SegmentSealed):
            await container.merge("sealed", "source")
        with pytest.raises(BadAttributeUpdate):
            await container.merge("s", "source", advance(3, 4))
        with pytest.raises(SegmentTruncated):
            await container.merge("s", "cut")
        with pytest.raises(SegmentNotFound, match="missing"):
            await container.merge("s", "missing")
        with pytest.raises(InvalidArgument):
            await container.merge("s", "s")
        assert await container.append("source", [b"still open"]) == 10

    async def test_many_merges_in_one_batch(self, container: SegmentContainer) -> None:
        await container.create_segment("s")
        for number in range(5):
            await container.create_segment(f"t{number}")
            await container.append(f"t{number}", [b"%d" % number * (number + 1)])
        sources = ["t0", "t1", "missing", "t2", "t3", "t4"]
        answers = await asyncio.gather(*(container.merge("s", name) for name in sources), return_exceptions=True)
        assert answers[:2] == [MergeResult(1, 1), MergeResult(3, 2)]
        assert isinstance(answers[2], SegmentNotFound)
        assert await read_all(container, "s") == b"011222333344444"


class TestRestart:
    async def fill(self, container: SegmentContainer) -> None:
        for name in ("a", "b", "c", "t"):
            await container.create_segment(name)
        await container.append("a", [b"0123456789"], advance(NULL_ATTRIBUTE_VALUE, 7))
        await container.append("t", [b"from-t"])
        await container.merge("a", "t")
        await container.append("a", [bytes(3_000_000)])
        await container.truncate("a", 3)
        await container.append("b", [b"sealed"])
        await container.seal("b")
        await container.delete("c")

    async def check_filled(self, container: SegmentContainer) -> None:
        assert await read_all(container, "a", 3) == b"3456789from-t" + bytes(3_000_000)
        info = await container.get_info("a")
        assert (info.start_offset, info.length, info.attributes[WRITER]) == (3, 3_000_016, 7)
        assert (await container.get_info("b")).is_sealed and await read_all(container, "b") == b"sealed"
        for name in ("c", "t"):
            with pytest.raises(SegmentNotFound):
                await container.get_info(name)

    @pytest.mark.parametrize("clean", [True, False])
    async def test_everything_acknowledged_is_there_after_a_restart(self, kit: ContainerKit, clean: bool) -> None:
        for generation in range(4):
            container = await kit.open()
            if generation == 0:
                await self.fill(container)
            await self.check_filled(container)
            assert container.epoch == generation + 1
            if clean:
                await container.stop()
            else:
                await crash(container)

    async def test_ids_and_sequence_numbers_are_never_reused(self, kit: ContainerKit) -> None:
        first = await kit.open()
        await self.fill(first)
        ids, last = first.metadata.next_segment_id, first.metadata.sequence_number
        await crash(first)
        second = await kit.open()
        await second.create_segment("c")
        assert (await second.get_info("c")).segment_id >= ids
        assert second.metadata.sequence_number > last
        await second.stop()

    async def test_a_new_owner_fences_the_old_one(self, kit: ContainerKit) -> None:
        old = await kit.open()
        await old.create_segment("s")
        new = await kit.open()
        with pytest.raises(UnknownOutcome):
            await old.append("s", [b"zombie"])
        with pytest.raises(Fenced):
            await old.wait_stopped()
        with pytest.raises(ContainerOffline):
            await old.append("s", [b"zombie"])
        assert (await new.get_info("s")).length == 0
        await new.stop()

    async def test_waiting_reads_end_when_the_container_stops(self, kit: ContainerKit) -> None:
        container = await kit.open()
        await container.create_segment("s")
        waiting = asyncio.ensure_future(container.read("s", 0, 10))
        await asyncio.sleep(0)
        await container.stop()
        result = await waiting
        assert result.length == 0 and result.at_tail
        with pytest.raises(ContainerOffline):
            await container.read("s", 0, 10)
        assert kit.back_pressure.bytes == 0

    async def test_damage_stops_recovery(self, kit: ContainerKit) -> None:
        container = await kit.open()
        await container.create_segment("s")
        await container.stop()
        kit.logs.damage(0, kit.logs.entries(0)[-1].address)
        with pytest.raises(DataCorruption):
            await kit.open()


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "survives"),
        [(AppendFault.FAILED, False), (AppendFault.UNKNOWN_LOST, False), (AppendFault.UNKNOWN_STORED, True)],
    )
    async def test_a_failed_frame_takes_the_container_offline(
        self, kit: ContainerKit, fault: AppendFault, survives: bool
    ) -> None:
        container = await kit.open()
        await container.create_segment("s")
        await container.append("s", [b"acked"])
        kit.logs.faults.plan_append(fault)
        append = container.append("s", [b"+unknown"])
        await asyncio.sleep(0)
        later = container.append("s", [b"+later"])
        with pytest.raises(UnknownOutcome):
            await append
        with pytest.raises((UnknownOutcome, ContainerOffline)):
            await later
        with pytest.raises(Exception, match="injected"):
            await container.wait_stopped()
        again = await kit.open()
        assert await read_all(again, "s") == (b"acked+unknown" if survives else b"acked")
        await again.stop()

    async def test_what_was_never_sent_is_certainly_not_done(self, kit: ContainerKit) -> None:
        container = await kit.open()
        await container.create_segment("s")
        kit.logs.faults.hold()
        appends = [container.append("s", [bytes(1_000_000)]) for _ in range(10)]
        for _ in range(50):
            await asyncio.sleep(0)
        await crash(container)
        errors = [type(error) for error in await asyncio.gather(*appends, return_exceptions=True)]
        assert errors[0] is UnknownOutcome and errors[-1] is ContainerOffline
        assert errors == sorted(errors, key=lambda kind: kind is ContainerOffline)
        kit.logs.faults.release()
        again = await kit.open()
        assert (await again.get_info("s")).length <= 5_000_000
        await again.stop()

    async def test_a_rejection_waits_for_what_it_rests_on(self, kit: ContainerKit) -> None:
        """An append refused because of a seal that is not durable must not be answered before the seal is."""
        container = await kit.open()
        await container.create_segment("s")
        kit.logs.faults.hold()
        seal = asyncio.ensure_future(container.seal("s"))
        await asyncio.sleep(0)
        append = container.append("s", [b"x"])
        for _ in range(10):
            await asyncio.sleep(0)
        assert not append.done()
        await crash(container)
        with pytest.raises(UnknownOutcome):
            await seal
        with pytest.raises(ContainerOffline):
            await append

    @pytest.mark.parametrize(
        "name",
        [
            operation_processor.BEFORE_SEND,
            operation_processor.BEFORE_COMMIT,
            operation_processor.BEFORE_ACK,
        ],
    )
    async def test_a_crash_at_every_step_of_an_append(self, kit: ContainerKit, name: str) -> None:
        container = await kit.open()
        await container.create_segment("s")
        failpoints.arm(name, failpoints.raise_on_hit(name))
        with pytest.raises((UnknownOutcome, ContainerOffline)):
            await container.append("s", [b"data"])
        with pytest.raises(failpoints.FailpointError):
            await container.wait_stopped()
        again = await kit.open()
        assert (await read_all(again, "s")) == (b"" if name == operation_processor.BEFORE_SEND else b"data")
        await again.stop()

    @pytest.mark.parametrize("name", [durable_log.AFTER_FENCE, durable_log.AFTER_RECOVERY])
    async def test_a_crash_at_every_step_of_a_start(self, kit: ContainerKit, name: str) -> None:
        container = await kit.open()
        await container.create_segment("s")
        await container.append("s", [b"data"])
        await container.stop()
        failpoints.arm(name, failpoints.raise_on_hit(name))
        with pytest.raises(failpoints.FailpointError):
            await kit.open()
        again = await kit.open()
        assert await read_all(again, "s") == b"data"
        await again.stop()
