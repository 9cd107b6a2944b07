"""Says how every ``RevisionedSegments`` behaves: reads, conditional appends, and the mark."""

from __future__ import annotations

import asyncio

import pytest

from controller_service.segment_access.revisioned_segments import RevisionedSegments
from controller_service.segment_access.segment_access import SegmentAccess
from pravega_common.errors import SegmentNotFound, SegmentTruncated

S, T = "scope/_MARKstream/0.#epoch.0", "scope/_MARKother/0.#epoch.0"


class RevisionedSegmentsContract:
    """A subclass gives two fixtures on the same empty store: ``revisions`` and ``access``."""

    async def test_events_are_appended_behind_their_headers(
        self, revisions: RevisionedSegments, access: SegmentAccess
    ) -> None:
        await access.create_segments([S])
        assert await revisions.append_at(S, 0, b"first")
        assert await revisions.append_at(S, 13, b"second")
        assert (await access.info(S)).length == 27
        stored = b"\0\0\0\0\0\0\0\5first\0\0\0\0\0\0\0\6second"
        data = b""
        while len(data) < len(stored):
            data += await revisions.read(S, len(data), 100)
        assert data == stored
        assert await revisions.read(S, 13, 4) == stored[13:17]

    async def test_only_the_present_length_takes_an_append(
        self, revisions: RevisionedSegments, access: SegmentAccess
    ) -> None:
        await access.create_segments([S])
        assert await revisions.append_at(S, 0, b"first")
        for wrong in (0, 5, 12, 14):
            assert not await revisions.append_at(S, wrong, b"second")
        assert (await access.info(S)).length == 13
        assert await revisions.append_at(S, 13, b"second")

    async def test_one_of_two_appends_at_once_is_taken(
        self, revisions: RevisionedSegments, access: SegmentAccess
    ) -> None:
        await access.create_segments([S])
        other = self.other(revisions)
        taken = await asyncio.gather(revisions.append_at(S, 0, b"first"), other.append_at(S, 0, b"other"))
        assert sorted(taken) == [False, True]
        assert (await access.info(S)).length == 13
        assert await other.append_at(S, 13, b"next") and await revisions.append_at(S, 25, b"last")

    async def test_the_mark_moves_from_what_it_was(self, revisions: RevisionedSegments, access: SegmentAccess) -> None:
        await access.create_segments([S, T])
        assert await revisions.mark(S) is None
        assert not await revisions.move_mark(S, 5, 7)
        assert await revisions.mark(S) is None
        assert await revisions.move_mark(S, None, 0)
        assert await revisions.mark(S) == 0
        assert await revisions.move_mark(S, 0, 1 << 40)
        assert not await revisions.move_mark(S, 0, 7)
        assert await revisions.mark(S) == 1 << 40
        assert await revisions.mark(T) is None

    async def test_what_is_truncated_cannot_be_read(self, revisions: RevisionedSegments, access: SegmentAccess) -> None:
        await access.create_segments([S])
        assert await revisions.append_at(S, 0, b"first")
        assert await revisions.append_at(S, 13, b"second")
        await access.truncate_segment(S, 13)
        with pytest.raises(SegmentTruncated):
            await revisions.read(S, 0, 5)
        assert await revisions.read(S, 13, 100)
        assert await revisions.append_at(S, 27, b"third")

    async def test_a_missing_segment_is_named(self, revisions: RevisionedSegments, access: SegmentAccess) -> None:
        with pytest.raises(SegmentNotFound):
            await revisions.mark(S)
        with pytest.raises(SegmentNotFound):
            await revisions.append_at(S, 0, b"event")
        with pytest.raises(SegmentNotFound):
            await revisions.move_mark(S, None, 0)
        with pytest.raises(SegmentNotFound):
            await revisions.read(S, 0, 1)
        await access.create_segments([S])
        assert await revisions.append_at(S, 0, b"event")

    def other(self, revisions: RevisionedSegments) -> RevisionedSegments:
        """Another instance on the same store."""
        return revisions
