"""Says how every ``DurableDataLog`` behaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from crc32c import crc32c

from pravega_common.errors import Fenced, InvalidArgument, PravegaError, UnknownOutcome
from segment_service.contracts.data_log import DurableDataLog, LogAddress, LogEntry, frame_bytes_max

MakeLog = Callable[[int], Awaitable[DurableDataLog]]
"""An initialized log of the given container on the store of this test; every call is another owner."""


async def read_all(log: DurableDataLog) -> list[LogEntry]:
    return [entry async for entry in log.read()]


async def payloads(log: DurableDataLog) -> list[bytes]:
    return [bytes(entry.payload) for entry in await read_all(log)]


class DurableDataLogContract:
    """A subclass gives the fixture ``make_log``.

    Logs of the fixture roll over to a new plog after at most 256 KiB + one frame or earlier than 16 MiB.
    """

    zombie_errors: tuple[type[PravegaError], ...] = (Fenced,)
    """The errors of an append to a log with a later owner."""

    async def test_a_new_log_is_empty(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        assert await payloads(log) == []
        assert (log.container_id, log.epoch) == (1, 1)

    async def test_frames_come_back_in_order_with_their_addresses(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        futures = [log.append([b"frame-%d" % number, b"", memoryview(b"/tail")]) for number in range(20)]
        addresses = await asyncio.gather(*futures)
        assert addresses == sorted(set(addresses))
        entries = await read_all(await make_log(1))
        assert [entry.address for entry in entries] == addresses
        assert [bytes(entry.payload) for entry in entries] == [b"frame-%d/tail" % number for number in range(20)]

    async def test_a_checksum_of_the_caller_is_as_good_as_one_of_the_log(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        frames = [b"", b"x", os.urandom(100_000), os.urandom(frame_bytes_max)]
        for frame in frames:
            tail = b"/tail"[: frame_bytes_max - len(frame)]
            await log.append([frame, tail], crc32c(frame + tail))
        assert await payloads(await make_log(1)) == [(frame + b"/tail")[:frame_bytes_max] for frame in frames]

    async def test_large_frames_cross_plogs(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        frames = [os.urandom(frame_bytes_max - number) for number in range(3)] + [b"x", os.urandom(100_000)]
        for frame in frames:
            await log.append([memoryview(frame)[:10], memoryview(frame)[10:]])
        assert await payloads(await make_log(1)) == frames

    async def test_acknowledgements_come_in_order(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        order: list[int] = []
        futures = [log.append([os.urandom(200_000 if number % 3 else 10)]) for number in range(12)]
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
        await asyncio.gather(*futures)
        await asyncio.sleep(0)
        assert order == list(range(12))

    async def test_containers_do_not_see_each_other(self, make_log: MakeLog) -> None:
        one, two = await make_log(1), await make_log(2)
        await one.append([b"of one"])
        await two.append([b"of two"])
        assert await payloads(await make_log(1)) == [b"of one"]
        assert await payloads(await make_log(2)) == [b"of two"]

    async def test_epochs_grow_with_every_owner(self, make_log: MakeLog) -> None:
        epochs = [(await make_log(1)).epoch for _ in range(4)]
        assert epochs == sorted(set(epochs))

    async def test_addresses_grow_over_owners(self, make_log: MakeLog) -> None:
        last = LogAddress(-1, 0)
        for number in range(4):
            log = await make_log(1)
            address = await log.append([b"frame %d" % number])
            assert address > last
            last = address
        assert len(await payloads(await make_log(1))) == 4

    async def test_a_later_owner_fences_the_earlier_one(self, make_log: MakeLog) -> None:
        old = await make_log(1)
        await old.append([b"acked"])
        new = await make_log(1)
        with pytest.raises(self.zombie_errors):
            await old.append([b"zombie"])
        with pytest.raises(PravegaError):
            await old.append([b"zombie again"])
        await new.append([b"of the new owner"])
        assert await payloads(await make_log(1)) == [b"acked", b"of the new owner"]

    async def test_an_owner_learns_of_a_later_one_without_appending(self, make_log: MakeLog) -> None:
        old = await make_log(1)
        await old.append([b"acked"])
        await old.check_owner()
        new = await make_log(1)
        for _ in range(2):
            with pytest.raises(Fenced):
                await old.check_owner()
        await new.check_owner()
        assert await payloads(await make_log(1)) == [b"acked"]

    async def test_a_log_that_is_over_tells_its_owner_and_one_that_was_closed_does_not(self, make_log: MakeLog) -> None:
        old = await make_log(1)
        heard: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        old.on_failure(lambda error: None if heard.done() else heard.set_result(error))
        new = await make_log(1)
        unexpected: list[BaseException] = []
        new.on_failure(unexpected.append)
        with pytest.raises(self.zombie_errors):
            await old.append([b"zombie"])
        assert isinstance(await asyncio.wait_for(heard, 10), Fenced)
        await new.append([b"of the new owner"])
        await new.close()
        assert not unexpected

    async def test_a_zombie_cannot_truncate(self, make_log: MakeLog) -> None:
        old = await make_log(1)
        addresses = [await old.append([b"%d" % number]) for number in range(3)]
        await make_log(1)
        with pytest.raises(Fenced):
            await old.truncate(addresses[2])
        assert await payloads(await make_log(1)) == [b"0", b"1", b"2"]

    async def test_appends_in_flight_at_a_take_over_are_acked_only_if_kept(self, make_log: MakeLog) -> None:
        old = await make_log(1)
        futures = [old.append([b"%d" % number + bytes(50_000)]) for number in range(40)]
        new = await make_log(1)
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        acked = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, LogAddress)]
        assert acked == list(range(len(acked)))
        kept = [int(frame.rstrip(b"\0")) for frame in await payloads(new)]
        assert kept == list(range(len(kept)))
        assert len(kept) >= len(acked)

    async def test_truncation_drops_what_lies_before(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        addresses = [await log.append([b"%d" % number + bytes(200_000)]) for number in range(10)]
        await log.truncate(addresses[4])
        await log.append([b"10"])
        log = await make_log(1)
        entries = await read_all(log)
        assert [entry.address for entry in entries][:6] == addresses[4:]
        assert bytes(entries[-1].payload) == b"10"
        await log.truncate(entries[-1].address)
        assert await payloads(await make_log(1)) == [b"10"]

    async def test_truncation_at_the_same_place_again(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        addresses = [await log.append([b"%d" % number]) for number in range(3)]
        await log.truncate(addresses[1])
        await log.truncate(addresses[1])
        await log.truncate(addresses[2])
        assert await payloads(await make_log(1)) == [b"2"]

    async def test_truncation_only_where_a_frame_begins(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        address = await log.append([b"some frame"])
        for wrong in (
            LogAddress(address.plog_number, address.offset + 1),
            LogAddress(address.plog_number + 7, 0),
        ):
            with pytest.raises(InvalidArgument, match="no frame begins"):
                await log.truncate(wrong)

    async def test_frames_out_of_bounds_are_refused_alone(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        for frame in ([], [b""], [bytes(frame_bytes_max), b"x"]):
            with pytest.raises(InvalidArgument):
                await log.append(frame)
        await log.append([bytes(frame_bytes_max)])

    async def test_a_log_that_has_what_was_noted_goes_on(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        for number in range(3):
            await log.append([b"%d" % number])
        await log.close()
        await log.note_loss()
        for number in (3, 4):
            log = await make_log(1)
            assert await payloads(log) == [b"%d" % one for one in range(number)]
            await log.append([b"%d" % number])
            await log.note_loss()
        assert len(await payloads(await make_log(1))) == 5

    async def test_closing_twice_and_with_appends_in_flight(self, make_log: MakeLog) -> None:
        log = await make_log(1)
        await log.append([b"acked"])
        future = log.append([b"in flight"])
        await log.close()
        await log.close()
        with pytest.raises(UnknownOutcome):
            await future
        with pytest.raises(PravegaError):
            await log.append([b"late"])
        assert (await payloads(await make_log(1)))[0] == b"acked"
