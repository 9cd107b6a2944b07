"""Tells whether a stream cut is one that a reader can stand at (docs/controller-api.md 3.9)."""

from __future__ import annotations

from controller_service.store.records import EpochRecord, SegmentRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut, RangeIndex, is_valid, places_of
from pravega_common.names import segment_epoch


async def is_valid_in(context: StreamContext, placed: PlacedCut) -> bool:
    """Whether a cut of this stream is valid.

    A cut whose segments were all reached is judged as it stands. One with segments not reached yet costs the epochs in
    which segments of its gaps were replaced, too.
    """
    if not is_valid(placed):
        return False
    if min(placed.cut.values()) >= 0:
        return True
    epochs = [segment_epoch(identifier) for identifier in placed.cut]
    walk = GapWalk(placed)
    first = max(min(epochs), (await context.history()).oldest_epoch)
    passed = walk.passed_in(await context.epoch(first))
    while passed and walk.is_consistent:
        replaced = await context.stored_sealed(passed)
        numbers = {record.replaced_in_epoch for record in replaced.values()}
        passed = []
        async for epoch in context.walk_epochs(sorted(number for number in numbers if number <= max(epochs))):
            passed += walk.passed_in(epoch)
    return walk.is_consistent


class GapWalk:
    """Looks for a segment that a cut says was read wholly at some keys, and was not reached at others.

    In the gap before a segment not reached yet, all that came before it was read to the end. A segment in there that is
    wider than the gap cannot have been if the cut stands in one of its predecessors: then readers that begin at the cut
    would wait without end for what lies behind them.
    """

    def __init__(self, placed: PlacedCut) -> None:
        self._cut = placed.cut
        places = places_of(placed)
        self._parts = RangeIndex(places)
        self._gaps = RangeIndex(place for place in places if placed.cut[place[-1]] < 0)
        self._seen: set[int] = set()
        self.is_consistent = True

    def passed_in(self, epoch: EpochRecord) -> list[int]:
        """The segments of an epoch that lie in a gap and were read to the end, without those that came before."""
        passed = [segment for segment in epoch.segments if self._is_passed(segment)]
        for segment in passed:
            if min(self._parts.overlapping(segment.key_start, segment.key_end)) < segment.segment_id:
                self.is_consistent = False
        new = [segment.segment_id for segment in passed if segment.segment_id not in self._seen]
        self._seen.update(new)
        return new

    def _is_passed(self, segment: SegmentRecord) -> bool:
        follow = max(self._gaps.overlapping(segment.key_start, segment.key_end), default=-1)
        return segment.segment_id < follow and segment.segment_id not in self._cut
