"""Connections and requests that go well leave no line at info: a log grows with what happens, not with its clients."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from pravega_common.wire import commands as wire
from tests.support.store_in_process import running_store
from tests.support.wire_client import WireClient

SEGMENT, WRITER = "s/t/0.#epoch.0", bytes(16)


async def test_a_connection_that_comes_works_and_goes_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_store(tmp_path) as store:
        await store.client.call(
            SEGMENT, lambda number: wire.CreateSegment(number, SEGMENT, 0, 0), wire.SegmentCreated, idempotent=True
        )
        with capture_logs() as logged, caplog.at_level(logging.INFO):
            for event in range(1, 4):
                client = await WireClient.connect(store.port)
                await client.call(wire.SetupAppend(1, WRITER, SEGMENT), wire.AppendSetup)
                await client.call(wire.AppendBlockEnd(WRITER, 10, bytes(10), 1, event, 2), wire.DataAppended)
                await client.call(wire.ReadSegment(SEGMENT, 0, 10, "", 3), wire.SegmentRead)
                await client.close()
            structlog.get_logger().info("a line that is seen")
    assert [entry["event"] for entry in logged if entry["log_level"] != "debug"] == ["a line that is seen"]
    assert not caplog.records
