"""What a caller goes by stays: manifests that were put without an answer may come later, in any order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pravega_common.errors import UnknownOutcome
from pravega_common.runtime.clock import SystemClock
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.segment_storage import StorageState
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.contract.sorted_map_contract import STAMP, nothing

SEGMENT = 7
LONGER, SHORTER = b"0123456789", b"01234"


class StuckChunks(InMemoryChunkStorage):
    """Keeps puts of manifests on their way while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck = False
        self.waiting: list[tuple[str, list[Buffer]]] = []
        self.manifests_put = 0

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        if "/m/" in name and self.is_stuck:
            self.waiting.append((name, list(data)))
            raise UnknownOutcome(f"no answer for {name}")
        await super().put(name, data)
        self.manifests_put += "/m/" in name

    async def land(self) -> None:
        """Do the puts that wait."""
        waiting, self.waiting = self.waiting, []
        for name, data in waiting:
            await super().put(name, data)


async def opened(chunks: StuckChunks, epoch: int) -> RollingStorage:
    storage = RollingStorage(chunks, 0, SystemClock(), background=False)
    await storage.start(epoch, nothing, lambda: STAMP)
    return storage


async def two_on_their_way(chunks: StuckChunks, storage: RollingStorage) -> list[tuple[str, list[Buffer]]]:
    """A longer state has landed, and the manifest of a shorter one, that was made later, has not; returns that."""
    chunks.is_stuck = True
    with pytest.raises(UnknownOutcome):
        await storage.write(SEGMENT, 0, [LONGER])
    first, chunks.waiting = chunks.waiting, []
    with pytest.raises(UnknownOutcome):
        await storage.write(SEGMENT, 0, [SHORTER])
    second, chunks.waiting = chunks.waiting, first
    chunks.is_stuck = False
    await chunks.land()
    return second


@pytest.mark.parametrize("owner", ["the same", "the next"])
async def test_what_is_told_stays_when_an_older_state_lands_behind_it(owner: str) -> None:
    chunks = StuckChunks()
    storage = await opened(chunks, 1)
    chunks.waiting = await two_on_their_way(chunks, storage)
    if owner == "the next":
        storage = await opened(chunks, 2)
    whole = StorageState(SEGMENT, 0, len(LONGER), False)
    assert await storage.settled_state(SEGMENT, 0) == whole
    await chunks.land()
    for later in (storage, await opened(chunks, 3)):
        assert await later.state(SEGMENT) == whole
        assert bytes(await later.read(SEGMENT, 0, len(LONGER))) == LONGER


async def test_a_state_that_may_go_back_is_told_by_state() -> None:
    chunks = StuckChunks()
    storage = await opened(chunks, 1)
    chunks.waiting = await two_on_their_way(chunks, storage)
    assert await storage.state(SEGMENT) == StorageState(SEGMENT, 0, len(LONGER), False)
    await chunks.land()
    assert await storage.state(SEGMENT) == StorageState(SEGMENT, 0, len(SHORTER), False)


async def test_a_seal_that_was_found_stays() -> None:
    chunks = StuckChunks()
    storage = await opened(chunks, 1)
    await storage.write(SEGMENT, 0, [SHORTER])
    chunks.is_stuck = True
    with pytest.raises(UnknownOutcome):
        await storage.seal(SEGMENT)
    seal, chunks.waiting = chunks.waiting, []
    with pytest.raises(UnknownOutcome):
        await storage.truncate(SEGMENT, 1)
    truncation, chunks.waiting = chunks.waiting, seal
    chunks.is_stuck = False
    await chunks.land()
    await storage.seal(SEGMENT)
    chunks.waiting = truncation
    await chunks.land()
    state = await (await opened(chunks, 2)).state(SEGMENT)
    assert state is not None and state.is_sealed


async def test_what_is_settled_or_known_costs_no_put() -> None:
    chunks = StuckChunks()
    storage = await opened(chunks, 1)
    await storage.write(SEGMENT, 0, [LONGER])
    await storage.settled_state(SEGMENT, 0)
    later = await opened(chunks, 2)
    await later.settled_state(SEGMENT, len(LONGER))
    assert chunks.manifests_put == 1
    await later.settled_state(SEGMENT, len(SHORTER))
    await later.settled_state(SEGMENT, len(SHORTER))
    assert chunks.manifests_put == 2


async def test_nothing_is_made_of_a_segment_that_is_not_there() -> None:
    chunks = StuckChunks()
    storage = await opened(chunks, 1)
    assert await storage.settled_state(SEGMENT, 0) is None
    assert chunks.manifests_put == 0
