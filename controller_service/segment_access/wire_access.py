"""Implements ``SegmentAccess`` over the wire protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pravega_common.errors import SegmentExists, SegmentNotFound, SegmentSealed, SegmentTruncated
from pravega_common.invariants import check
from pravega_common.model.segments import SegmentInfo
from pravega_common.wire import commands as c
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient

calls_concurrent_max: Final = 256
"""Requests of one call outstanding at the stores; each container works its share off in groups. A limit for all calls
together would let those to a store that is away keep others from stores that answer."""


class WireSegmentAccess:
    """One request per segment, all outstanding together on one connection per store."""

    def __init__(self, client: RawClient, token: str = "") -> None:
        self._client = client
        self._tables = TableClient(client, token)
        self._token = token

    async def create_segments(
        self, segments: Sequence[str], *, scale_type: int = 0, target_rate: int = 0, rollover_size_bytes: int = 0
    ) -> None:
        async def create(segment: str) -> None:
            try:
                await self._client.call(
                    segment,
                    lambda rid: c.CreateSegment(
                        rid, segment, target_rate, scale_type, self._token, rollover_size_bytes
                    ),
                    c.SegmentCreated,
                    idempotent=True,
                )
            except SegmentExists:
                return

        await self._for_all(segments, create)

    async def seal_segments(self, segments: Sequence[str]) -> None:
        async def seal(segment: str) -> None:
            try:
                await self._client.call(
                    segment, lambda rid: c.SealSegment(rid, segment, self._token), c.SegmentSealed, idempotent=True
                )
            except SegmentSealed:
                return

        await self._for_all(segments, seal)

    async def delete_segments(self, segments: Sequence[str]) -> None:
        async def delete(segment: str) -> None:
            try:
                await self._client.call(
                    segment, lambda rid: c.DeleteSegment(rid, segment, self._token), c.SegmentDeleted, idempotent=True
                )
            except SegmentNotFound:
                return

        await self._for_all(segments, delete)

    async def truncate_segment(self, segment: str, offset: int) -> None:
        try:
            await self._client.call(
                segment,
                lambda rid: c.TruncateSegment(rid, segment, offset, self._token),
                c.SegmentTruncated,
                idempotent=True,
            )
        except SegmentTruncated:
            # The start lies at or behind the offset already.
            return

    async def update_policy(self, segment: str, scale_type: int, target_rate: int) -> None:
        await self._client.call(
            segment,
            lambda rid: c.UpdateSegmentPolicy(rid, segment, target_rate, scale_type, self._token),
            c.SegmentPolicyUpdated,
            idempotent=True,
        )

    async def info(self, segment: str) -> SegmentInfo:
        reply = await self._client.call(
            segment,
            lambda rid: c.GetStreamSegmentInfo(rid, segment, self._token),
            c.StreamSegmentInfo,
            idempotent=True,
        )
        if not reply.exists or reply.is_deleted:
            raise SegmentNotFound(segment)
        return SegmentInfo(segment, reply.start_offset, reply.write_offset, reply.is_sealed, reply.last_modified)

    async def merge_batch(self, target: str, sources: Sequence[str]) -> list[int]:
        if not sources:
            return []
        # Made again after a lost answer it finds the sources gone, and the records of their merges in the target.
        reply = await self._client.call(
            target,
            lambda rid: c.MergeSegmentsBatch(rid, target, tuple(sources), self._token),
            c.SegmentsBatchMerged,
            idempotent=True,
        )
        lengths = [merged.new_target_write_offset for merged in reply.merged]
        check(len(lengths) == len(sources), "a batch merge answered another number of lengths", target=target)
        return lengths

    async def create_table_segment(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> None:
        await self._tables.create(segment, key_length, rollover_size_bytes)

    async def delete_table_segment(self, segment: str, must_be_empty: bool) -> None:
        await self._tables.delete(segment, must_be_empty)

    async def _for_all(self, segments: Sequence[str], call: Callable[[str], Awaitable[None]]) -> None:
        """All calls together; the first error counts, after all have ended."""

        slots = asyncio.Semaphore(calls_concurrent_max)

        async def limited(segment: str) -> None:
            async with slots:
                await call(segment)

        outcomes = await asyncio.gather(*(limited(segment) for segment in segments), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
