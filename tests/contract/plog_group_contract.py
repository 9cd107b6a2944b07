"""Says how every ``PersistenceGroupClient`` behaves."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable

import pytest
from crc32c import crc32c

from pravega_common.errors import DataCorruption, Fenced, PravegaError
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.append_turns import held_appends_max
from segment_service.plog.chain import Chain, find_end, offset_max
from segment_service.plog.entry import PlogEntryHeader, PlogEntryKind, encode_envelope
from segment_service.plog.group_contract import OpenPlog, PersistenceGroupClient
from segment_service.plog.plog import FenceToken, PlogHeader, PlogId
from segment_service.plog.plog_client import AppendRefused, PlogMissing
from segment_service.plog.redis_connection import ReplyError

CONTAINER = 7
MakeGroup = Callable[[], PersistenceGroupClient]
"""Another client of the servers of this test."""


def header(epoch: int = 1) -> PlogHeader:
    return PlogHeader(PlogId("test", "g0", secrets.token_hex(16)), CONTAINER, "data", 0, epoch, 4_000_000)


class Writer:
    """Appends entries that follow one another to a plog, and notes which are acknowledged."""

    def __init__(self, group: PersistenceGroupClient, plog: OpenPlog, epoch: int = 1) -> None:
        self.group = group
        self.plog = plog
        self.epoch = epoch
        self.end = 0
        self.acked = 0
        self.errors: list[BaseException] = []
        self.sequence = 0
        self.last: LogAddress | None = None

    def send(self, payload: bytes, *, is_urgent: bool = False) -> asyncio.Future[None]:
        return self.prepare(payload, is_urgent=is_urgent)()

    def prepare(self, payload: bytes, *, is_urgent: bool = False) -> Callable[[], asyncio.Future[None]]:
        """The next append, to be called in any order."""
        head = PlogEntryHeader(PlogEntryKind.DATA, self.epoch, self.sequence, self.acked, self.last)
        envelope = encode_envelope(head, len(payload), crc32c(payload))
        start, size = self.end, len(envelope) + len(payload)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if error is None:
                self.acked += 1
                future.set_result(None)
            else:
                self.errors.append(error)
                future.set_exception(error)

        self.last, self.sequence, self.end = LogAddress(0, start), self.sequence + 1, start + size
        send = self.group.append_urgent if is_urgent else self.group.append

        def call() -> asyncio.Future[None]:
            send(self.plog, start, (envelope, payload), size, done)
            return future

        return call


async def opened(group: PersistenceGroupClient, epoch: int = 1) -> Writer:
    await group.open_for_appends()
    return Writer(group, await group.create(header(epoch)), epoch)


async def recover(group: PersistenceGroupClient, plog_id: PlogId, epoch: int) -> tuple[int, int]:
    """Fence, settle and seal a plog; its end and the number of its entries."""
    fenced = await group.fence(plog_id, epoch)
    end = await find_end(fenced.read(0, offset_max), 0, 0, Chain(0))
    await fenced.settle(end.offset)
    assert await fenced.seal(end.offset) == end.offset
    return end.offset, len(end.payload_sizes)


async def read_all(group: PersistenceGroupClient, plog_id: PlogId, end: int, epoch: int = 9) -> list[bytes]:
    entries = group.read_sealed(plog_id, epoch, 0, end)
    return [bytes(stored.decode("the plog").payload) async for stored in entries]


class PlogGroupContract:
    """A subclass gives the fixture ``make_group``."""

    async def test_appends_are_done_in_their_order_and_read_back_once_sealed(self, make_group: MakeGroup) -> None:
        group = make_group()
        writer = await opened(group)
        payloads = [b"%d" % number * 10_000 for number in range(8)]
        order: list[int] = []
        futures = [writer.send(payload) for payload in payloads]
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
        await asyncio.gather(*futures)
        assert order == list(range(8))
        assert await group.seal(writer.plog, 1, writer.end) == writer.end
        assert await read_all(make_group(), writer.plog.plog_id, writer.end) == payloads

    async def test_appends_out_of_their_turn_are_held_and_leave_in_order(self, make_group: MakeGroup) -> None:
        group = make_group()
        writer = await opened(group)
        payloads = [b"%d" % number * 1_000 for number in range(20)]
        calls = [writer.prepare(payload) for payload in payloads]
        order = list(range(1, 20))
        random.Random(3).shuffle(order)
        futures = [calls[number]() for number in order]
        await asyncio.sleep(0)
        assert (writer.acked, writer.plog.turns.end, writer.plog.turns.held_appends) == (0, 0, 19)
        await asyncio.gather(calls[0](), *futures)
        assert (writer.plog.turns.end, writer.plog.turns.held_bytes) == (writer.end, 0)
        assert await group.seal(writer.plog, 1, writer.end) == writer.end
        assert await read_all(make_group(), writer.plog.plog_id, writer.end) == payloads

    async def test_appends_out_of_their_turn_are_bounded_and_refused_with_the_end(self, make_group: MakeGroup) -> None:
        group = make_group()
        writer = await opened(group)
        await writer.send(b"first")
        end = writer.end
        gap = writer.prepare(b"the gap")
        held = [writer.prepare(b"%d" % number)() for number in range(held_appends_max)]
        with pytest.raises(AppendRefused, match=f"ends at {end}: {held_appends_max} appends wait"):
            await writer.prepare(b"one too many")()
        writer.end = 0
        with pytest.raises(AppendRefused, match=f"ends at {end}: what lies there was sent before"):
            await writer.send(b"again")
        writer.errors.clear()
        await asyncio.gather(gap(), *held)
        assert not writer.errors and writer.acked == held_appends_max + 2

    async def test_an_empty_plog_is_recovered_and_sealed(self, make_group: MakeGroup) -> None:
        writer = await opened(make_group())
        assert await recover(make_group(), writer.plog.plog_id, 2) == (0, 0)
        assert await read_all(make_group(), writer.plog.plog_id, 0) == []

    async def test_whoever_fences_ends_the_appends_of_the_one_before(self, make_group: MakeGroup) -> None:
        old, new = make_group(), make_group()
        writer = await opened(old)
        await writer.send(b"acked")
        assert (await recover(new, writer.plog.plog_id, 2))[1] == 1
        with pytest.raises((AppendRefused, ReplyError)):
            await writer.send(b"zombie")
        with pytest.raises(PravegaError):
            await old.append_small(writer.plog, writer.end, b"zombie")
        with pytest.raises(Fenced):
            await old.fence(writer.plog.plog_id, 1)

    async def test_tokens_grow_with_every_fence(self, make_group: MakeGroup) -> None:
        group = make_group()
        writer = await opened(group)
        tokens = []
        for epoch in (1, 1, 3):
            await group.fence(writer.plog.plog_id, epoch)
            status = await group.status(writer.plog.plog_id)
            assert status is not None
            tokens.append(status.token)
        assert tokens == [FenceToken(1, 1), FenceToken(1, 2), FenceToken(3)]

    async def test_a_recovery_finds_every_acknowledged_append(self, make_group: MakeGroup) -> None:
        old = make_group()
        writer = await opened(old)
        futures = [writer.send(b"x" * 50_000) for _ in range(20)]
        await futures[6]
        end, count = await recover(make_group(), writer.plog.plog_id, 2)
        await asyncio.gather(*futures, return_exceptions=True)
        assert writer.acked <= count <= 20
        assert len(await read_all(make_group(), writer.plog.plog_id, end)) == count

    async def test_a_recovery_that_was_cut_off_is_done_again(self, make_group: MakeGroup) -> None:
        writer = await opened(make_group())
        await asyncio.gather(*(writer.send(b"%d" % number) for number in range(5)))
        for epoch in (2, 2, 3):
            fenced = await make_group().fence(writer.plog.plog_id, epoch)
            end = await find_end(fenced.read(0, offset_max), 0, 0, Chain(0))
            await fenced.settle(end.offset)
        assert await recover(make_group(), writer.plog.plog_id, 3) == (writer.end, 5)

    async def test_urgent_appends_follow_the_others(self, make_group: MakeGroup) -> None:
        group = make_group()
        writer = await opened(group)
        await asyncio.gather(*(writer.send(b"%d" % number, is_urgent=number > 1) for number in range(5)))
        assert (await recover(make_group(), writer.plog.plog_id, 2))[1] == 5

    async def test_a_small_entry_goes_where_the_plog_ends_and_nowhere_else(self, make_group: MakeGroup) -> None:
        group = make_group()
        writer = await opened(group)
        await group.append_small(writer.plog, 0, b"first")
        with pytest.raises(AppendRefused):
            await group.append_small(writer.plog, 3, b"overlapping")
        with pytest.raises(AppendRefused):
            await group.append_small(writer.plog, 6, b"behind a gap")
        await group.append_small(writer.plog, 5, b"second")
        assert await group.has_entry_at(writer.plog.plog_id, 5)
        assert not await group.has_entry_at(writer.plog.plog_id, 6)

    async def test_what_was_deleted_is_missing(self, make_group: MakeGroup) -> None:
        group = make_group()
        writer = await opened(group)
        plog_id = writer.plog.plog_id
        assert (await group.header(plog_id)).plog_id == plog_id
        assert plog_id in await group.list_plogs(CONTAINER)
        assert not await group.has_entries(plog_id)
        assert not await group.delete(plog_id, CONTAINER, 0)
        assert await group.delete(plog_id, CONTAINER, 1)
        assert await group.delete(plog_id, CONTAINER, 1)
        assert plog_id not in await group.list_plogs(CONTAINER)
        assert await group.status(plog_id) is None
        with pytest.raises(PlogMissing):
            await group.fence(plog_id, 2)
        with pytest.raises(PlogMissing):
            await read_all(group, plog_id, 10)

    async def test_a_sealed_plog_that_is_shorter_is_damaged(self, make_group: MakeGroup) -> None:
        writer = await opened(make_group())
        await writer.send(b"x")
        end, _ = await recover(make_group(), writer.plog.plog_id, 2)
        with pytest.raises(DataCorruption):
            await read_all(make_group(), writer.plog.plog_id, end + 1)
        with pytest.raises(Fenced):
            await read_all(make_group(), writer.plog.plog_id, end, epoch=1)

    async def test_there_is_room(self, make_group: MakeGroup) -> None:
        assert await make_group().has_room()

    async def test_a_reset_ends_unanswered_appends_and_the_next_call_connects_again(
        self, make_group: MakeGroup
    ) -> None:
        group = make_group()
        writer = await opened(group)
        await writer.send(b"acked")
        future = writer.send(b"in flight")
        group.reset()
        with pytest.raises(PravegaError):
            await future
        assert (await recover(group, writer.plog.plog_id, 1))[1] in (1, 2)
