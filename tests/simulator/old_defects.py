"""Brings old defects of the store back, one at a time, so that a seed shows whether the simulator would find them.

Each switches off what mended it and nothing else. They are the findings F1, F2, F4 and F8 of the first storage reviews.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from unittest import mock

from pravega_common.errors import DataCorruption, SegmentDamaged
from segment_service.container import log_verification, segment_container
from segment_service.container.log_verification import find_contradiction
from segment_service.container.segment_container import SegmentContainer
from segment_service.durable_log.durable_log import DurableLog
from segment_service.durable_log.recovery import Recovered
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.plog.loss_note import LossNotes
from segment_service.writer.segment_aggregator import SegmentAggregator
from segment_service.writer.segment_flusher import SegmentFlusher


class OldDefect(NamedTuple):
    family: str
    """The family of faults under which it shows."""
    unfixed: Callable[[], contextlib.AbstractContextManager[None]]
    """The product without the fix, for as long as the context is open."""


async def nobody_compares(self: LossNotes, frames: int) -> None:
    """What an owner noted of the frames that it found lost is not looked at."""


@contextlib.contextmanager
def older_log_is_used() -> Iterator[None]:
    """A log that ends before what Tier 2 has of it is taken for whole (F1): neither high water nor next id are
    compared, and a segment's length in Tier 2 only with what it has grown to."""
    difference, reconcile = log_verification._difference, SegmentFlusher._reconcile

    def without_high_water(*args: Any) -> str | None:
        problem = difference(*args)
        return None if problem is not None and problem.startswith("an older copy") else problem

    async def without_recovered_length(self: SegmentFlusher, aggregator: SegmentAggregator, **named: Any) -> None:
        metadata = self._source.segment(aggregator.segment_id)
        if metadata is not None:
            metadata.recovered_length = None
        await reconcile(self, aggregator, **named)

    with (
        mock.patch.object(log_verification, "_difference", without_high_water),
        mock.patch.object(SegmentFlusher, "_reconcile", without_recovered_length),
        mock.patch.object(LossNotes, "compare", nobody_compares),
    ):
        yield


@contextlib.contextmanager
def emptied_log_starts_afresh() -> Iterator[None]:
    """A log that is empty beside a Tier 2 that is not begins again with segment 1 (F2)."""
    verify = find_contradiction

    def without_empty_log(metadata: ContainerMetadata, recovered: Recovered, *others: Any) -> str | None:
        return None if recovered.operations == 0 else verify(metadata, recovered, *others)

    with (
        mock.patch.object(segment_container, "find_contradiction", without_empty_log),
        mock.patch.object(LossNotes, "compare", nobody_compares),
    ):
        yield


@contextlib.contextmanager
def full_tier1_stays_full() -> Iterator[None]:
    """Nobody frees a Tier 1 that is full (F4): neither while the container runs nor at its start, whose first
    checkpoint comes before anything else."""

    async def nobody_looks(self: DurableLog) -> None:
        await asyncio.Event().wait()

    async def checkpoint_first(self: SegmentContainer) -> None:
        await self.durable_log.checkpoint()

    with (
        mock.patch.object(DurableLog, "_watch_full", nobody_looks),
        mock.patch.object(SegmentContainer, "_write_first_checkpoint", checkpoint_first),
    ):
        yield


@contextlib.contextmanager
def damage_stops_the_container() -> Iterator[None]:
    """A damaged segment ends its container instead of being held (F8)."""

    def raise_it(self: SegmentFlusher, aggregator: SegmentAggregator, error: SegmentDamaged) -> None:
        raise DataCorruption(str(error))

    with mock.patch.object(SegmentFlusher, "_hold", raise_it):
        yield


OLD_DEFECTS: Final = {
    "older-log-is-used": OldDefect("loss", older_log_is_used),
    "emptied-log-starts-afresh": OldDefect("loss", emptied_log_starts_afresh),
    "full-tier1-stays-full": OldDefect("full", full_tier1_stays_full),
    "damage-stops-the-container": OldDefect("damage", damage_stops_the_container),
}
