"""The driver killed with all its processes at every step of a batch, and started again from its checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from pravega_spark.batch_commit import AFTER_DECISION, BEFORE_DECISION, BEFORE_RETURN
from pravega_spark.direct_writer import DIRECT_ROWS_DURABLE
from pravega_spark.partition_writer import (
    ROWS_DURABLE,
    ROWS_WRITTEN,
    TRANSACTION_BEGUN,
    TRANSACTION_REGISTERED,
)
from tests.spark.driver_process import DriverProcess
from tests.spark.streams import Streams

POINTS = [
    TRANSACTION_BEGUN,
    TRANSACTION_REGISTERED,
    ROWS_WRITTEN,
    ROWS_DURABLE,
    BEFORE_DECISION,
    AFTER_DECISION,
    BEFORE_RETURN,
]


def prepared(streams: Streams, **sink: str) -> dict[str, Any]:
    streams.create("from", 2)
    streams.create("to", 2)
    for first in range(0, 400, 100):
        streams.fill("from", first, first + 100)
    return {
        "controller": streams.controller,
        "scope": streams.scope,
        "source": "from",
        "target": "to",
        "checkpoint": str(streams.folder / "checkpoint"),
        "bytes": "2000",
        "sink": sink,
    }


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(streams: Streams, point: str) -> None:
    """Lost 0, duplicated 0, and per key in order."""
    given = prepared(streams)
    log = streams.folder / "driver.log"
    driver = DriverProcess(given, log, f"{point}=stop")
    try:
        driver.wait_stopped_inside()
    finally:
        driver.kill()
    DriverProcess(given, log).finish()
    assert streams.numbers("to") == list(range(400))


@pytest.mark.slow
def test_at_least_once_shows_what_the_harness_can_see(streams: Streams) -> None:
    """The same kill without transactions repeats rows: the comparison above would have seen it."""
    given = prepared(streams, exactly_once="false")
    log = streams.folder / "driver.log"
    driver = DriverProcess(given, log, f"{DIRECT_ROWS_DURABLE}=stop")
    try:
        driver.wait_stopped_inside()
    finally:
        driver.kill()
    DriverProcess(given, log).finish()
    numbers = streams.numbers("to")
    assert set(numbers) == set(range(400))
    assert len(numbers) > 400
