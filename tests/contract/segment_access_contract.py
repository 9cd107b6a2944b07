"""Says how every ``SegmentAccess`` behaves: the controller's calls on segment stores, each of them repeatable."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import pytest

from controller_service.segment_access.segment_access import SegmentAccess
from pravega_common.errors import SegmentNotFound, SegmentSealed

Append = Callable[[str, int], Awaitable[None]]
"""Grows a segment by this many bytes, as a writer does."""
S, T = "scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"


def transaction_of(segment: str) -> str:
    return f"{segment}#transaction.{uuid.uuid4().hex}"


class SegmentAccessContract:
    """A subclass gives two fixtures: ``access``, on an empty store, and ``append``."""

    async def test_creating_is_repeatable(self, access: SegmentAccess, append: Append) -> None:
        await access.create_segments([S, T])
        await append(S, 10)
        await access.create_segments([S, T], scale_type=1, target_rate=5)
        assert (await access.info(S)).length == 10
        assert (await access.info(T)).length == 0

    async def test_a_missing_segment_is_named(self, access: SegmentAccess) -> None:
        with pytest.raises(SegmentNotFound):
            await access.info(S)
        with pytest.raises(SegmentNotFound):
            await access.seal_segments([S])
        with pytest.raises(SegmentNotFound):
            await access.truncate_segment(S, 0)

    async def test_sealing_is_repeatable(self, access: SegmentAccess, append: Append) -> None:
        await access.create_segments([S])
        await append(S, 10)
        for _ in range(2):
            await access.seal_segments([S])
        found = await access.info(S)
        assert (found.length, found.is_sealed) == (10, True)

    async def test_deleting_is_repeatable(self, access: SegmentAccess) -> None:
        await access.create_segments([S, T])
        for _ in range(2):
            await access.delete_segments([S])
        with pytest.raises(SegmentNotFound):
            await access.info(S)
        assert (await access.info(T)).length == 0

    async def test_the_start_only_moves_forward(self, access: SegmentAccess, append: Append) -> None:
        await access.create_segments([S])
        await append(S, 100)
        for offset, start in ((40, 40), (40, 40), (20, 40), (100, 100)):
            await access.truncate_segment(S, offset)
            found = await access.info(S)
            assert (found.start_offset, found.length) == (start, 100)

    async def test_a_policy_changes_nothing_else(self, access: SegmentAccess, append: Append) -> None:
        await access.create_segments([S])
        await append(S, 10)
        for _ in range(2):
            await access.update_policy(S, 1, 100)
        assert (await access.info(S)).length == 10

    async def test_merges_are_in_order_and_repeatable(self, access: SegmentAccess, append: Append) -> None:
        sources = [transaction_of(S) for _ in range(3)]
        await access.create_segments([S, *sources])
        await append(S, 5)
        for length, source in enumerate(sources, 1):
            await append(source, length)
        await access.seal_segments(sources)
        assert await access.merge_batch(S, sources) == [6, 8, 11]
        await append(S, 4)
        assert await access.merge_batch(S, sources) == [6, 8, 11]
        await access.seal_segments([S])
        assert await access.merge_batch(S, sources[1:]) == [8, 11]
        for source in sources:
            with pytest.raises(SegmentNotFound):
                await access.info(source)

    async def test_a_source_that_is_missing_without_a_record_is_an_error(
        self, access: SegmentAccess, append: Append
    ) -> None:
        merged, missing, there = [transaction_of(S) for _ in range(3)]
        await access.create_segments([S, T, merged, there])
        await append(there, 5)
        assert await access.merge_batch(S, [merged]) == [0]
        with pytest.raises(SegmentNotFound) as refused:
            await access.merge_batch(S, [merged, there, missing])
        assert refused.value.segment == missing
        assert (await access.info(there)).length == 5, "nothing of a refused batch is merged"
        with pytest.raises(SegmentNotFound) as refused:
            await access.merge_batch(T, [merged])
        assert refused.value.segment == merged, "it was merged into another one"
        assert await access.merge_batch(S, []) == []

    async def test_nothing_is_merged_into_a_sealed_segment(self, access: SegmentAccess, append: Append) -> None:
        source = transaction_of(S)
        await access.create_segments([S, source])
        await append(source, 5)
        await access.seal_segments([S, source])
        with pytest.raises(SegmentSealed):
            await access.merge_batch(S, [source])
        assert (await access.info(source)).length == 5

    async def test_table_segments_are_made_and_deleted_repeatably(self, access: SegmentAccess) -> None:
        for _ in range(2):
            await access.create_table_segment("scope/table_kvtable/0.#epoch.0", key_length=8)
        for _ in range(2):
            await access.delete_table_segment("scope/table_kvtable/0.#epoch.0", must_be_empty=False)
