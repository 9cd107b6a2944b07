"""Implements ``SegmentAccess`` over the wire protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pravega_common.errors import (
    PravegaError,
    SegmentError,
    SegmentExists,
    SegmentNotFound,
    SegmentSealed,
    SegmentTruncated,
)
from pravega_common.invariants import check
from pravega_common.model.segments import SegmentInfo
from pravega_common.wire import commands as c
from pravega_streams.connection.batches import SegmentCall
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient

R = TypeVar("R", bound=c.Command)


class WireSegmentAccess:
    """Segments of one call travel in batches, to all stores at the same time; a plain Pravega gets single requests."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._tables = TableClient(client)

    async def create_segments(
        self, segments: Sequence[str], *, scale_type: int = 0, target_rate: int = 0, rollover_size_bytes: int = 0
    ) -> None:
        def create(segment: str) -> SegmentCall[c.SegmentCreated]:
            def make(rid: int) -> c.Command:
                return c.CreateSegment(rid, segment, target_rate, scale_type, "", rollover_size_bytes)

            return SegmentCall(segment, make, c.SegmentCreated)

        await self._all_done(segments, create, SegmentExists)

    async def seal_segments(self, segments: Sequence[str]) -> None:
        def seal(segment: str) -> SegmentCall[c.SegmentSealed]:
            return SegmentCall(segment, lambda rid: c.SealSegment(rid, segment, ""), c.SegmentSealed)

        await self._all_done(segments, seal, SegmentSealed)

    async def delete_segments(self, segments: Sequence[str]) -> None:
        def delete(segment: str) -> SegmentCall[c.SegmentDeleted]:
            return SegmentCall(segment, lambda rid: c.DeleteSegment(rid, segment, ""), c.SegmentDeleted)

        await self._all_done(segments, delete, SegmentNotFound)

    async def truncate_segment(self, segment: str, offset: int) -> None:
        try:
            await self._client.call(
                segment,
                lambda rid: c.TruncateSegment(rid, segment, offset, ""),
                c.SegmentTruncated,
                idempotent=True,
            )
        except SegmentTruncated:
            # The start lies at or behind the offset already.
            return

    async def update_policy(self, segment: str, scale_type: int, target_rate: int) -> None:
        await self._client.call(
            segment,
            lambda rid: c.UpdateSegmentPolicy(rid, segment, target_rate, scale_type, ""),
            c.SegmentPolicyUpdated,
            idempotent=True,
        )

    async def info(self, segment: str) -> SegmentInfo:
        call = self._info_call(segment)
        return _info_of(await self._client.call(segment, call.make, call.expect, idempotent=True))

    async def infos(self, segments: Sequence[str]) -> list[SegmentInfo]:
        replies = await self._client.call_many([self._info_call(segment) for segment in segments], idempotent=True)
        return [_info_of(reply) for reply in _good(replies)]

    async def infos_found(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        replies = await self._client.call_many([self._info_call(segment) for segment in segments], idempotent=True)
        return [_found_info(reply) for reply in replies]

    async def lengths(self, segments: Sequence[str]) -> list[int | None]:
        found = await self._client.lengths_of(segments)
        left = [segment for segment in segments if segment not in found]
        infos = zip(left, await self.infos_found(left), strict=True) if left else ()
        found |= {segment: c.NO_SEGMENT if info is None else info.length for segment, info in infos}
        return [None if (length := found[segment]) == c.NO_SEGMENT else length for segment in segments]

    async def merge_batch(self, target: str, sources: Sequence[str]) -> list[int]:
        [lengths] = await self.merge_batches([(target, sources)])
        if isinstance(lengths, SegmentError):
            raise lengths
        return lengths

    async def merge_batches(
        self, merges: Sequence[tuple[str, Sequence[str]]]
    ) -> list[list[int] | SegmentNotFound | SegmentSealed]:
        def merge(target: str, sources: tuple[str, ...]) -> SegmentCall[c.SegmentsBatchMerged]:
            def make(rid: int) -> c.Command:
                return c.MergeSegmentsBatch(rid, target, sources, "")

            return SegmentCall(target, make, c.SegmentsBatchMerged)

        calls = [merge(target, tuple(sources)) for target, sources in merges if sources]
        # Made again after a lost answer it finds the sources gone, and the records of their merges in the target.
        outcomes = iter(await self._client.call_many(calls, idempotent=True))
        found: list[list[int] | SegmentNotFound | SegmentSealed] = []
        for _, sources in merges:
            outcome = next(outcomes) if sources else None
            if isinstance(outcome, PravegaError) and not isinstance(outcome, SegmentNotFound | SegmentSealed):
                raise outcome
            found.append(_lengths_of(outcome, len(sources)) if isinstance(outcome, c.Command) else outcome or [])
        return found

    async def create_table_segment(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> None:
        await self._tables.create(segment, key_length, rollover_size_bytes)

    async def delete_table_segment(self, segment: str, must_be_empty: bool) -> None:
        await self._tables.delete(segment, must_be_empty)

    def _info_call(self, segment: str) -> SegmentCall[c.StreamSegmentInfo]:
        def make(rid: int) -> c.Command:
            return c.GetStreamSegmentInfo(rid, segment, "")

        return SegmentCall(segment, make, c.StreamSegmentInfo)

    async def _all_done(
        self, segments: Sequence[str], call: Callable[[str], SegmentCall[R]], done_before: type[SegmentError]
    ) -> None:
        """Repeat all until each is done, or was before; the first error counts, after all have ended."""
        for outcome in await self._client.call_many([call(segment) for segment in segments], idempotent=True):
            if isinstance(outcome, PravegaError) and not isinstance(outcome, done_before):
                raise outcome


def _good(outcomes: Sequence[R | PravegaError]) -> list[R]:
    good = []
    for outcome in outcomes:
        if isinstance(outcome, PravegaError):
            raise outcome
        good.append(outcome)
    return good


def _info_of(reply: c.StreamSegmentInfo) -> SegmentInfo:
    if not reply.exists or reply.is_deleted:
        raise SegmentNotFound(reply.segment)
    return SegmentInfo(reply.segment, reply.start_offset, reply.write_offset, reply.is_sealed, reply.last_modified)


def _found_info(reply: c.StreamSegmentInfo | PravegaError) -> SegmentInfo | None:
    try:
        return _info_of(_good([reply])[0])
    except SegmentNotFound:
        return None


def _lengths_of(reply: c.SegmentsBatchMerged, sources: int) -> list[int]:
    lengths = [merged.new_target_write_offset for merged in reply.merged]
    check(len(lengths) == sources, "a batch merge answered another number of lengths", target=reply.target)
    return lengths
