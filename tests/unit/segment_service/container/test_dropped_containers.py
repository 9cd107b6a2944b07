"""A container that a store gave up leaves its memory, though it lived long and its parts refer to each other."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_common.services import cycle_collector
from pravega_common.wire import commands as wire
from segment_service.process import collector_thresholds
from tests.support.collector_thresholds import thresholds_of_collector
from tests.support.eventually import eventually
from tests.support.store_in_process import running_store

SEGMENT = "scope/stream/0.#epoch.0"


@pytest.fixture(autouse=True)
def as_in_a_store() -> Iterator[None]:
    with thresholds_of_collector(*collector_thresholds):
        yield


async def test_a_container_that_moved_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle_collector, "period_s", 0.05)
    async with running_store(tmp_path) as store:
        await store.client.call(
            SEGMENT, lambda number: wire.CreateSegment(number, SEGMENT, 0, 0), wire.SegmentCreated, idempotent=True
        )
        registry = store.process.registry
        await eventually(lambda: len(registry) == 2, "the containers run")
        gone = [weakref.ref(container) for container in registry]
        gc.collect()  # they belong to the oldest generation by now
        version = (await store.cpo.get_assignment()).version
        await store.cpo.put_assignment(version, {})
        await eventually(lambda: all(container() is None for container in gone), "their memory is free")
