"""Measures a segment that many writers appended to once: ``python -m tests.bench.bench_many_writers``.

Every writer asks for its last event and appends one of 100 B. Then 1,000 writers go on, 16 appends at a time, and some
that appended long ago come back. Reports the memory that all this added, the bytes of a checkpoint, the latencies of
both, the look-ups in Tier 2 and the attributes that they were for, and the time of the next start. ``--all-in-memory``
keeps all attributes in memory, as before there was an index. The log is in memory and durable at once, Tier 2 is a
directory. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import uvloop

from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.metadata import held_attributes
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from tests.bench.bench_inactive_segments import DirectoryKit, checkpoint_bytes, resident_mib

SEGMENT: Final = "scope/stream/0.#epoch.0"
DATA: Final = bytes(100)
COUNT: Final = AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 1)
active: Final = 1_000
appends: Final = 40_000
returns: Final = 1_000
at_once: Final = 16


def writer(number: int) -> AttributeId:
    return AttributeId(random.Random(number).randbytes(16))  # as uuids: in no order


async def timed_ms(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


def percentiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {"p50": round(ordered[len(ordered) // 2], 3), "p99": round(ordered[len(ordered) * 99 // 100], 3)}


async def append(container: SegmentContainer, attribute: AttributeId, number: int, last: int) -> None:
    update = AttributeUpdate(attribute, AttributeUpdateType.REPLACE_IF_EQUALS, number, last)
    await container.append(SEGMENT, [DATA], (update, COUNT))


async def set_up(container: SegmentContainer, attribute: AttributeId) -> None:
    """The first append of a connection."""
    last = await container.get_attribute(SEGMENT, attribute)
    await append(container, attribute, max(last, 0) + 1, last)


async def all_append(container: SegmentContainer, writers: int) -> None:
    for first in range(0, writers, active):
        await asyncio.gather(*(set_up(container, writer(one)) for one in range(first, first + active)))


async def some_go_on(container: SegmentContainer, writers: int) -> list[float]:
    times: list[float] = []

    async def go_on(ids: list[AttributeId]) -> None:
        last = {one: await container.get_attribute(SEGMENT, one) for one in ids}
        for turn in range(appends // at_once):
            one = ids[turn % len(ids)]
            known = last[one]
            last[one] = max(known, 0) + 1
            times.append(await timed_ms(append(container, one, last[one], known)))

    ids = [writer(writers - active + number) for number in range(active)]
    await asyncio.gather(*(go_on(ids[first::at_once]) for first in range(at_once)))
    return times


async def measure(folder: Path, writers: int) -> dict[str, Any]:
    before = resident_mib()
    kit = DirectoryKit(folder, MetadataTableConfig(flush_age_s=1.0))
    await kit.files.start()
    container = await kit.open()
    await container.create_segment(SEGMENT)
    first_s = await timed_ms(all_append(container, writers)) / 1e3
    await asyncio.sleep(3.0)  # for what goes on in the background
    segment = container.metadata.by_name(SEGMENT)
    result: dict[str, Any] = {
        "writers": writers,
        "first_appends_per_s": round(writers / first_s),
        "attributes_in_memory": len(segment.attributes) if segment is not None else 0,
        "memory_mib": round(resident_mib() - before, 1),
        "checkpoint_bytes": checkpoint_bytes(container),
        "checkpoint_ms": round(await timed_ms(container.durable_log.checkpoint()), 1),
        "append_ms": percentiles(await some_go_on(container, writers)),
    }
    rng = random.Random(1)
    back = [writer(rng.randrange(writers - active)) for _ in range(returns)]
    result["come_back_ms"] = percentiles([await timed_ms(set_up(container, one)) for one in back])
    result |= {"look_ups": container.attributes.look_ups_total, "looked_up": container.attributes.read_total}
    await container.durable_log.checkpoint()
    await container.stop()
    container = kit.make()
    result["start_ms"] = round(await timed_ms(container.start()), 1)
    check = await container.get_attribute(SEGMENT, back[0])
    assert check != NULL_ATTRIBUTE_VALUE
    await container.stop()
    await kit.files.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=1_000_000)
    parser.add_argument("--all-in-memory", action="store_true")
    arguments = parser.parse_args()
    if arguments.all_in_memory:
        for limit in ("held_max", "held_hard_max", "held_in_container_max"):
            setattr(held_attributes, limit, 1 << 62)
    folder = Path(tempfile.mkdtemp(prefix="bench-writers-"))
    try:
        print(json.dumps(uvloop.run(measure(folder, arguments.writers))), flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
