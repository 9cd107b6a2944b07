"""Finding the end of a plog, and reading a sealed one, over entries made by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.chain import Chain, find_end, sealed_entries
from segment_service.plog.entry import PlogEntryHeader, PlogEntryKind, encode_entry
from segment_service.plog.plog_client import StoredEntry

PLOG = 5


class Plog:
    """Entries of a plog in the making."""

    def __init__(self, first_sequence: int = 0) -> None:
        self.entries: list[StoredEntry] = []
        self.sequence = first_sequence
        self.last: LogAddress | None = None
        self.end = 0

    def add(
        self, *, acked: int = 0, epoch: int = 1, kind: PlogEntryKind = PlogEntryKind.DATA, payload: bytes = b"x"
    ) -> Plog:
        header = PlogEntryHeader(kind, epoch, self.sequence, acked, self.last)
        data = encode_entry(header, payload)
        self.entries.append(StoredEntry(self.end, self.end + len(data), data))
        self.last = LogAddress(PLOG, self.end)
        self.end += len(data)
        self.sequence += 1
        return self

    async def read(self) -> AsyncIterator[StoredEntry]:
        for entry in self.entries:
            yield entry


async def test_the_end_of_an_empty_plog() -> None:
    end = await find_end(Plog().read(), PLOG, 0, Chain(0))
    assert (end.offset, end.payload_sizes) == (0, [])


async def test_the_end_is_the_last_contiguous_frame() -> None:
    plog = Plog().add(payload=b"one").add().add(payload=b"three")
    chain = Chain(0)
    end = await find_end(plog.read(), PLOG, 0, chain)
    assert (end.offset, end.payload_sizes) == (plog.end, [3, 1, 5])
    assert (chain.next_sequence, chain.last) == (3, plog.last)


async def test_frames_behind_a_gap_do_not_count() -> None:
    plog = Plog().add(acked=0).add(acked=0).add(acked=1).add(acked=1)
    del plog.entries[1]
    end = await find_end(plog.read(), PLOG, 0, Chain(0))
    assert (end.offset, len(end.payload_sizes)) == (plog.entries[0].end, 1)


async def test_a_gap_among_acknowledged_frames_is_lost_data() -> None:
    plog = Plog().add().add().add(acked=1).add(acked=2)
    del plog.entries[1]
    with pytest.raises(DataCorruption, match="2 entries had been acknowledged: the server lost data"):
        await find_end(plog.read(), PLOG, 0, Chain(0))


async def test_reading_on_from_an_acknowledged_end() -> None:
    plog = Plog(first_sequence=10).add().add().add()
    start = plog.entries[1].start
    plog.entries = plog.entries[1:]
    chain = Chain(11, LogAddress(PLOG, 0))
    assert (await find_end(plog.read(), PLOG, start, chain)).offset == plog.end


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (Chain(3), "entry 0 where 3 must follow"),
        (Chain(0, LogAddress(2, 0)), "the entry before it is at"),
        (Chain(0, None, epoch=4), "of epoch 1, after an entry of epoch 4"),
    ],
)
async def test_a_frame_that_does_not_follow(chain: Chain, message: str) -> None:
    with pytest.raises(DataCorruption, match=message):
        await find_end(Plog().add().read(), PLOG, 0, chain)


async def test_metadata_among_data_is_refused() -> None:
    with pytest.raises(DataCorruption, match="a METADATA entry in a log of DATA entries"):
        await find_end(Plog().add(kind=PlogEntryKind.METADATA).read(), PLOG, 0, Chain(0))


async def test_a_sealed_plog_gives_every_frame() -> None:
    plog = Plog().add(payload=b"one").add(payload=b"two")
    found = [bytes(entry.payload) async for entry in sealed_entries(plog.read(), PLOG, 0, plog.end, Chain(0))]
    assert found == [b"one", b"two"]


@pytest.mark.parametrize("missing", [0, 1, 2])
async def test_a_sealed_plog_with_a_hole_is_corrupt(missing: int) -> None:
    plog = Plog().add().add().add()
    del plog.entries[missing]
    with pytest.raises(DataCorruption, match="plog 5"):
        async for _ in sealed_entries(plog.read(), PLOG, 0, plog.end, Chain(0)):
            pass
