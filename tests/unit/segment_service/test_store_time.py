"""A store whose machine has another time of day notes when events came by that of the control plane oracle."""

from __future__ import annotations

import time
from pathlib import Path

from pravega_common.wire.commands import (
    AppendSetup,
    ConditionalAppend,
    CreateSegment,
    DataAppended,
    SegmentCreated,
    SetupAppend,
)
from tests.support.event_index import settled
from tests.support.fakes.clock import AheadClock
from tests.support.store_in_process import running_store
from tests.support.wire_client import WireClient

SEGMENT, WRITER = "scope/stream/0.#epoch.0", b"0123456789abcdef"
DAY_MS = 86_400_000


async def test_events_have_the_time_of_the_cluster(tmp_path: Path) -> None:
    """A range by time would miss what came to a store that is ahead, and reads of yesterday would have it."""
    clock = AheadClock()
    clock.ahead_ms = DAY_MS
    async with running_store(tmp_path, clock) as store:
        await store.client.call(
            SEGMENT, lambda number: CreateSegment(number, SEGMENT, 0, 0), SegmentCreated, idempotent=True
        )
        client = await WireClient.connect(store.port)
        await client.call(SetupAppend(1, WRITER, SEGMENT), AppendSetup)
        await client.call(ConditionalAppend(WRITER, 1, 0, b"event", 2), DataAppended)
        records = await settled(store.process.store, SEGMENT)
        assert records and abs(records[-1].time_ms - time.time() * 1000) < DAY_MS / 2
        await client.close()
