"""Lists what the window asks, and limits what one question may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from controller_service.cluster.placement import Placement
from controller_service.event_processors.request_stream import WireClients
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.sets.transaction_set_service import TransactionSetService
from controller_service.store.stream_store import StreamStore
from controller_service.transactions.transaction_store import TransactionStore
from controller_service.watermarks.watermark_ages import NewestWatermark
from controller_service.workflows.reader_groups import ReaderGroups
from pravega_common.errors import Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.services.problems import Problem

T = TypeVar("T")

answer_time_max_s: Final = 10.0
"""One answer of the window; stores are asked again and again within it."""
look_time_max_s: Final = 3.0
"""The part of an answer that only stores know: without it the rest is answered all the same."""


@dataclass(frozen=True)
class WindowParts:
    """``blocked``: the reasons of streams whose commits stand still, by ``scope/stream``. ``status``: of this
    controller, and of its parts by their names. ``look_again``: makes ``placement`` new, with the
    figures that stores sent of late. ``controllers``: the addresses of those that are live."""

    store: StreamStore
    access: SegmentAccess
    transactions: TransactionStore
    sets: TransactionSetService
    groups: ReaderGroups
    blocked: Callable[[], Mapping[str, str]]
    problems: Callable[[], Sequence[Problem]]
    status: Callable[[], tuple[str, Mapping[str, str]]]
    placement: Callable[[], Placement]
    look_again: Callable[[], Awaitable[None]]
    controllers: Callable[[], Awaitable[Sequence[tuple[str, int]]]]
    clock: Clock
    clients: WireClients | None = None
    """None for a controller that cannot read events."""
    newest_watermark: Callable[[str, str], Awaitable[NewestWatermark | None]] | None = None
    """Finds that of a stream by scope and name; None for a controller without watermarks."""


async def within(seconds: float, work: Awaitable[T], asked: str = "the segment stores") -> T:
    """The result of the work; ``Unavailable`` if it takes longer. The work only reads, so it may be cut off."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise Unavailable(f"{asked} did not answer within {seconds:g} s") from None
