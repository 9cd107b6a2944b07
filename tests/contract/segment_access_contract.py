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

    async def test_many_are_looked_up_in_their_order(self, access: SegmentAccess, append: Append) -> None:
        await access.create_segments([S, T])
        await append(T, 7)
        assert [info.name for info in await access.infos([T, S, T])] == [T, S, T]
        assert [info.length for info in await access.infos([T, S])] == [7, 0]
        assert await access.infos([]) == []
        with pytest.raises(SegmentNotFound) as missing:
            await access.infos([S, transaction_of(S), T])
        assert missing.value.segment.startswith(f"{S}#transaction")
        found = await access.infos_found([T, transaction_of(S), S])
        assert [info and (info.name, info.length) for info in found] == [(T, 7), None, (S, 0)]
        assert await access.infos_found([]) == []
        assert await access.lengths([T, transaction_of(S), S, T]) == [7, None, 0, 7]
        assert await access.lengths([]) == []

    async def test_each_target_of_many_has_its_own_outcome(self, access: SegmentAccess, append: Append) -> None:
        sealed, missing = "scope/stream/2.#epoch.0", transaction_of(T)
        sources = [transaction_of(S), transaction_of(T), transaction_of(sealed)]
        await access.create_segments([S, T, sealed, *sources])
        for length, source in enumerate(sources, 1):
            await append(source, length)
        await access.seal_segments([sealed, *sources])
        merges = [(S, [sources[0]]), (T, [sources[1], missing]), (sealed, [sources[2]]), (T, [])]
        merged, refused, too_late, nothing = await access.merge_batches(merges)
        assert (merged, nothing) == ([1], [])
        assert isinstance(refused, SegmentNotFound)
        assert refused.segment == missing
        assert isinstance(too_late, SegmentSealed)
        assert (await access.info(sources[1])).length == 2, "nothing of a refused target is merged"
        assert await access.merge_batches([(T, [sources[1]]), (S, [sources[0]])]) == [[2], [1]]
        assert await access.merge_batches([]) == []

    async def test_a_thousand_segments_in_one_call(self, access: SegmentAccess, append: Append) -> None:
        names = [f"scope/wide/{number}.#epoch.0" for number in range(1_001)]
        sources = [transaction_of(name) for name in names]
        await access.create_segments(names)
        await access.create_segments([*names, *sources])
        await append(sources[7], 5)
        assert [info.length for info in await access.infos(sources)] == [5 * (number == 7) for number in range(1_001)]
        assert await access.lengths([*sources, *sources]) == [5 * (number == 7) for number in range(1_001)] * 2
        merged = await access.merge_batches([(name, [source]) for name, source in zip(names, sources, strict=True)])
        assert merged == [[5 * (number == 7)] for number in range(1_001)]
        await access.seal_segments(names)
        assert all(info.is_sealed for info in await access.infos(names))
        await access.delete_segments([*names, *sources])
        with pytest.raises(SegmentNotFound):
            await access.info(names[0])

    async def test_table_segments_are_made_and_deleted_repeatably(self, access: SegmentAccess) -> None:
        for _ in range(2):
            await access.create_table_segment("scope/table_kvtable/0.#epoch.0", key_length=8)
        for _ in range(2):
            await access.delete_table_segment("scope/table_kvtable/0.#epoch.0", must_be_empty=False)
