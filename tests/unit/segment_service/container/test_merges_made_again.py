"""Makes merges again whose answers were lost, across restarts and checkpoints, and merges what never was."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import SegmentMerged, SegmentNotFound
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.merge_records import (
    MergeRecord,
    MergeRecords,
    forget_old,
    merge_record_age_max_ms,
    merge_records_max,
    remember,
    source_key,
)
from segment_service.durable_log.requests import CheckpointRequest
from tests.support.containers import ContainerKit

TARGET = "scope/stream/0.#epoch.0"


async def merged_length(container: SegmentContainer, source: str, target: str = TARGET) -> int | None:
    with pytest.raises(SegmentNotFound) as refused:
        await container.merge(target, source)
    assert refused.value.segment == source
    return refused.value.target_length if isinstance(refused.value, SegmentMerged) else None


@pytest.mark.parametrize("with_checkpoint", [False, True])
async def test_a_merge_made_again_is_answered_from_its_record(with_checkpoint: bool) -> None:
    kit = ContainerKit()
    container = await kit.open()
    for name in (TARGET, "other", "a", "b"):
        await container.create_segment(name)
    await container.append("a", [b"12345"])
    await container.append("b", [b"12"])
    assert (await container.merge(TARGET, "a")).target_length == 5
    # Both at once: the second finds the first on its way, and is answered behind it.
    first, again = await asyncio.gather(container.merge(TARGET, "b"), merged_length(container, "b"))
    assert (first.target_length, again) == (7, 7)
    await container.append(TARGET, [b"tail"])
    for _ in range(2):
        assert [await merged_length(container, source) for source in ("a", "b", "never")] == [5, 7, None]
        assert await merged_length(container, "a", "other") is None
        if with_checkpoint:
            container.durable_log.add(CheckpointRequest())
        await container.stop()
        container = await kit.open()
    await container.seal(TARGET)
    assert await merged_length(container, "a") == 5
    assert (await container.get_info(TARGET)).length == 11
    await container.stop()


def test_records_are_bounded_in_number_and_age() -> None:
    records: MergeRecords = {}
    for number in range(merge_records_max + 3):
        remember(records, source_key(str(number)), MergeRecord(number, 1_000))
    assert len(records) == merge_records_max
    assert source_key("2") not in records and source_key("3") in records
    remember(records, source_key("3"), MergeRecord(9_999, 2_000))
    assert list(records)[-1] == source_key("3")
    forget_old(records, 1_000 + merge_record_age_max_ms)
    assert len(records) == merge_records_max
    forget_old(records, 1_001 + merge_record_age_max_ms)
    assert list(records) == [source_key("3")]
