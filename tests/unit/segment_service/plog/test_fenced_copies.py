"""A fenced plog is completed from copies of which some are damaged, have a gap, or are behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from pravega_common.errors import DataCorruption, Unavailable
from segment_service.plog.entry import PlogEntry
from segment_service.plog.fenced_copies import FencedCopies, PlogCopy
from segment_service.plog.group_servers import GroupServers
from segment_service.plog.plog import FenceToken, PlogId
from segment_service.plog.plog_client import PlogClient, StoredEntry

GAP, DAMAGED = ".", "?"
offset_max = 100


class OneByte(StoredEntry):
    """An entry of one byte, which says whether it is damaged."""

    def decode(self, where: str) -> PlogEntry:
        if self.data == DAMAGED.encode():
            raise DataCorruption(where)
        return cast("PlogEntry", self.data)


class CopyOnServer:
    """What a server has of the plog: a character an entry, ``GAP`` for none."""

    def __init__(self, number: int, entries: str) -> None:
        self.address = f"server-{number}"
        self.entries = {start: byte for start, byte in enumerate(entries) if byte != GAP}

    def __str__(self) -> str:
        return "".join(self.entries.get(start, GAP) for start in range(max(self.entries, default=-1) + 1))

    async def read(self, plog_id: PlogId, token: FenceToken, start: int, end: int) -> AsyncIterator[StoredEntry]:
        for first in sorted(self.entries):
            if first >= start:
                yield OneByte(first, first + 1, self.entries[first].encode())

    async def header(self, plog_id: PlogId) -> bytes:
        return b"header"

    async def remake(self, header: bytes, token: FenceToken) -> None:
        self.entries = {}

    async def trim(self, plog_id: PlogId, token: FenceToken, end: int, entry_ends: Sequence[int]) -> None:
        for one in entry_ends:
            del self.entries[one - 1]

    async def append_copy(self, plog_id: PlogId, token: FenceToken, entry: StoredEntry) -> None:
        assert entry.start == max(self.entries, default=-1) + 1
        self.entries[entry.start] = bytes(entry.data).decode()


async def settled(copies: Sequence[str], *, are_all_known: bool) -> list[str]:
    """The copies once they are completed up to what any of them has."""
    servers = [CopyOnServer(number, entries) for number, entries in enumerate(copies)]
    clients = [cast("PlogClient", server) for server in servers]
    found = [PlogCopy(number, client, same_run=True) for number, client in enumerate(clients)]
    group = GroupServers([*clients, *clients[:1]][:3])
    plog_id = PlogId("test", "g0", "00ff")
    plog = FencedCopies(group, plog_id, 1, FenceToken(1), found, are_all_known=are_all_known)
    ends = [entry.end async for entry in plog.read(0, offset_max)]
    try:
        await plog.settle(ends[-1])
    except (DataCorruption, Unavailable) as error:
        assert "nothing was removed" in str(error)
        assert [str(server) for server in servers] == list(copies)
        raise
    return [str(server) for server in servers]


@pytest.mark.parametrize("third", ["xxxxxx", "xxxxx", "x", ""])
@pytest.mark.parametrize(("first", "second"), [("x?xxxx", "xxx?xx"), ("x.xxxx", "xxx.xx"), ("x.xxxx", "xxx?xx")])
async def test_three_copies_that_have_it_all_together_are_completed(first: str, second: str, third: str) -> None:
    assert (await settled([first, second, third], are_all_known=True)).count("xxxxxx") >= 2


async def test_two_copies_with_gaps_complete_each_other() -> None:
    assert await settled(["x.xxxx", "xxx.xx"], are_all_known=False) == ["xxxxxx", "xxxxxx"]


@pytest.mark.parametrize(("first", "second"), [("x?xxxx", "xxx?xx"), ("x.xxxx", "xxx?xx")])
async def test_copies_of_which_one_would_give_up_what_only_it_has_are_left_as_they_are(first: str, second: str) -> None:
    with pytest.raises(Unavailable, match="a server that does not answer may have what is missing"):
        await settled([first, second], are_all_known=False)
