"""The segments of a round of commits that another run has left half-merged."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.transactions.commit_merges import CommitMerges
from controller_service.transactions.records import MergeTarget, transaction_segments
from pravega_common.model.segments import SegmentInfo
from pravega_common.runtime.clock import SystemClock
from tests.support.fakes.segment_access import InMemorySegmentAccess

S, T = "scope", "stream"
SEGMENTS, COUNT = 64, 3


class CountingAccess(InMemorySegmentAccess):
    """Counts calls, however many segments each is about."""

    def __init__(self) -> None:
        super().__init__()
        self.lookups = 0

    async def info(self, segment: str) -> SegmentInfo:
        self.lookups += 1
        return await super().info(segment)

    async def infos_found(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        self.lookups += 1
        return [await InMemorySegmentAccess.info(self, name) if name in self.segments else None for name in segments]


async def test_the_rest_of_a_round_is_looked_up_in_one_call() -> None:
    access = CountingAccess()
    context = StreamContext(StreamStore(InMemoryVersionedStore(), SystemClock(), lambda: "id"), S, T, "id")
    ids = [uuid.UUID(int=number + 1) for number in range(COUNT)]
    numbers = range(SEGMENTS)
    for place, identifier in enumerate(ids):
        names = transaction_segments(S, T, identifier, list(numbers))
        # The first transaction was merged into all segments, the second into those with even numbers.
        kept = [name for number, name in enumerate(names) if place == 2 or (place == 1 and number % 2)]
        await access.create_segments(kept)
        for name in kept:
            access.append(name, 10 * (place + 1))
    targets = [MergeTarget(number, 99, (10, 20, 30)) for number in numbers]
    left = await CommitMerges(access).left(context, ids, targets)
    assert left == [MergeTarget(number, 0, (0, 20 * (number % 2), 30)) for number in numbers]
    assert access.lookups == 1
