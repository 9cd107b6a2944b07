"""Random operations on a real container and on the in-memory fake: every result and every refusal must be the same.

The fake is what the wire server and the clients are tested with, so it has to behave as a container does.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from pravega_common.errors import BadAttributeUpdate, BadOffset, PravegaError, SegmentMerged, SegmentTruncated
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import (
    CREATION_TIME,
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.segment_store import MergeResult, ReadResult, SegmentProperties, SegmentStore
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.writer.config import WriterConfig
from tests.support.containers import ContainerKit, leave_memory
from tests.support.fakes.segment_store import InMemorySegmentStore

SEGMENTS = [f"scope/stream/{number}.#epoch.0" for number in range(3)]
SOURCES = [f"{SEGMENTS[0]}#transaction.{number:032x}" for number in range(3)]
ATTRIBUTES = [AttributeId(bytes([number]) * 16) for number in range(2)] + [EVENT_COUNT]
OPERATIONS = 400
SEEDS = range(8)


def updates(rng: random.Random) -> list[AttributeUpdate]:
    values = [0, 1, 2, 3, NULL_ATTRIBUTE_VALUE]
    return [
        AttributeUpdate(
            rng.choice(ATTRIBUTES), rng.choice(list(AttributeUpdateType)), rng.choice(values[:4]), rng.choice(values)
        )
        for _ in range(rng.choice([0, 0, 1, 1, 2]))
    ]


def kit_of(seed: int) -> ContainerKit:
    """Every second one lets segments leave memory whenever they may, every fourth one shares objects in Tier 2."""
    kit = ContainerKit()
    kit.shares_objects = seed % 4 == 3
    if seed % 2:
        kit.write_to_tier2(WriterConfig(flush_age_s=0.0, transaction_age_s=0.0, tick_s=0.001))
        table = MetadataTableConfig(flush_age_s=0.001, idle_s=0.0, look_s=0.001, active_max=1)
        kit.config = replace(kit.config, metadata_table=table)
    return kit


Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""Method, arguments, keyword arguments."""


def random_call(rng: random.Random) -> Call:
    segment = rng.choice(SEGMENTS + SOURCES)
    match rng.choice(["append"] * 6 + ["read"] * 4 + ["other"] * 7):
        case "append":
            data = [rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(3))]
            expected = rng.choice([None, None, None, rng.randrange(100)])
            return "append", (segment, data, updates(rng)), {"expected_offset": expected}
        case "read":
            return "read", (segment, rng.randrange(200), rng.choice([1, 10, 1000])), {}
    name = rng.choice(["create_segment", "create_segment", "create_segment", "get_info", "get_attribute",
                       "update_attributes", "truncate", "merge", "seal", "delete"])  # fmt: skip
    match name:
        case "create_segment":
            return name, (segment, ()), {}
        case "get_attribute":
            return name, (segment, rng.choice(ATTRIBUTES)), {}
        case "update_attributes":
            return name, (segment, updates(rng)), {}
        case "truncate":
            return name, (segment, rng.randrange(100)), {}
        case "merge":
            return name, (rng.choice(SEGMENTS), rng.choice(SOURCES), updates(rng)), {}
        case "seal" | "delete" if rng.random() < 0.6:
            return "get_info", (segment,), {}
    return name, (segment,), {}


async def outcome(store: SegmentStore, call: Call) -> Any:
    """The answer to a call, in a form that is the same for every store."""
    name, arguments, options = call
    try:
        if name == "read" and await would_wait(store, arguments[0], arguments[1]):
            return "would wait"
        result = await getattr(store, name)(*arguments, **options)
    except SegmentTruncated as error:
        return ("SegmentTruncated", error.segment, error.start_offset, error.offset)
    except BadOffset as error:
        return ("BadOffset", error.segment, error.expected_offset, error.offset)
    except BadAttributeUpdate as error:
        return ("BadAttributeUpdate", error.segment, error.attribute_id, error.current)
    except SegmentMerged as error:
        return ("SegmentNotFound", error.segment)  # a store may forget that a segment was merged
    except PravegaError as error:
        return (type(error).__name__, getattr(error, "segment", None))
    if isinstance(result, ReadResult):
        return (result.offset, b"".join(result.data), result.at_tail, result.end_of_segment)
    if isinstance(result, SegmentProperties):
        attributes = {key: value for key, value in result.attributes.items() if key in ATTRIBUTES}
        return (result.name, result.start_offset, result.length, result.is_sealed, attributes)
    if isinstance(result, MergeResult):
        return (result.target_length, result.merged_length)
    return result


async def would_wait(store: SegmentStore, segment: str, offset: int) -> bool:
    info = await store.get_info(segment)
    return not info.is_sealed and offset >= info.length


@pytest.mark.parametrize("seed", SEEDS)
async def test_one_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    fake, container = InMemorySegmentStore(), await kit_of(seed).open()
    seen: Counter[str] = Counter()
    for number in range(OPERATIONS):
        if seed % 2 and number % 10 == 0:
            await leave_memory(container)
        call = random_call(rng)
        expected, actual = await outcome(fake, call), await outcome(container, call)
        assert actual == expected, f"call {number} of seed {seed}: {call}"
        seen[expected[0] if isinstance(expected, tuple) and isinstance(expected[0], str) else call[0]] += 1
    await container.stop()
    assert len(seen) > 8, seen
    assert (container.evictor.evicted_total > 10) == bool(seed % 2)


@pytest.mark.parametrize("seed", SEEDS)
async def test_all_at_once_take_effect_in_call_order(seed: int) -> None:
    """Bursts of appends, seals, merges and updates that are not awaited one by one."""
    rng = random.Random(1000 + seed)
    fake, container = InMemorySegmentStore(), await kit_of(seed).open()
    for number in range(40):
        if seed % 2:
            await leave_memory(container)
        calls = [random_call(rng) for _ in range(rng.randint(1, 20))]
        burst = [call for call in calls if call[0] not in ("read", "get_info", "get_attribute")]
        expected = await asyncio.gather(*(outcome(fake, call) for call in burst))
        actual = await asyncio.gather(*(outcome(container, call) for call in burst))
        assert actual == expected, f"burst {number} of seed {seed}: {burst}"
        for segment in SEGMENTS + SOURCES:
            call: Call = ("get_info", (segment,), {})
            assert await outcome(container, call) == await outcome(fake, call)
    await container.stop()


@pytest.mark.parametrize("seed", range(3))
async def test_after_a_recovery(seed: int) -> None:
    rng = random.Random(2000 + seed)
    kit = kit_of(seed)
    fake, container = InMemorySegmentStore(), await kit.open()
    for _ in range(5):
        for _ in range(60):
            call = random_call(rng)
            assert await outcome(container, call) == await outcome(fake, call)
        await container.stop()
        container = await kit.open()
        await check_same(fake, container)
    await container.stop()


async def check_same(fake: InMemorySegmentStore, container: SegmentContainer) -> None:
    for segment in SEGMENTS + SOURCES:
        info: Call = ("get_info", (segment,), {})
        assert await outcome(container, info) == await outcome(fake, info)
        read: Call = ("read", (segment, 0, 100_000), {})
        assert await outcome(container, read) == await outcome(fake, read)
        if segment in fake.segment_names:
            assert await container.get_attribute(segment, CREATION_TIME) > 0
