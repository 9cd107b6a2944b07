"""Calls the controller from an event loop, in threads: its calls are few, and one blocking client serves all."""

from __future__ import annotations

import asyncio
from typing import Final

from pravega_common.model.segments import SegmentOffsets, SegmentRange, Successor
from pravega_common.names import INDEX_SUFFIX, SegmentName, parse_segment_name
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.client import ControllerClient

endpoints_cached_max: Final = 10_000
"""Segments whose store is remembered."""


class AsyncController:
    """A client of the controller for readers and other code with a loop; also the resolver of ``RawClient``.

    Errors: those of ``ControllerClient``.
    """

    def __init__(self, client: ControllerClient) -> None:
        self.client = client
        self._endpoints: dict[str, Endpoint] = {}

    async def resolve(self, segment: str) -> Endpoint:
        """Return the store of a segment; a transaction's or an index segment lives where its parent does."""
        parsed = _parsed(segment)
        endpoint = self._endpoints.get(parsed.stream_segment)
        if endpoint is None:
            endpoint = await asyncio.to_thread(self.client.endpoint, parsed.scope, parsed.stream, parsed.segment_id)
            if len(self._endpoints) >= endpoints_cached_max:
                self._endpoints.clear()
            self._endpoints[parsed.stream_segment] = endpoint
        return endpoint

    async def token(self, segment: str) -> str:
        """Return what the store is shown; a call to the controller where it is not known."""
        tokens = self.client.tokens
        known = tokens.known(segment)
        return known if known is not None else await asyncio.to_thread(tokens.of_segment, segment)

    def forget(self, segment: str) -> None:
        """Drop the addresses that name the store of the segment, as containers move together, and the token of the
        stream. Those of other stores stay: while one is away every call to it would have all of them asked again."""
        gone = self._endpoints.get(_parsed(segment).stream_segment)
        if gone is not None:
            self._endpoints = {name: endpoint for name, endpoint in self._endpoints.items() if endpoint != gone}
        self.client.tokens.forget(segment)

    async def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        return await asyncio.to_thread(self.client.head_cut, scope, stream)

    async def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        """By key; empty for a sealed stream."""
        return await asyncio.to_thread(self.client.current_segments, scope, stream)

    async def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        """Empty while the segment is open, and at the end of a sealed stream."""
        return await asyncio.to_thread(self.client.successors, scope, stream, segment_id)

    async def is_cut_valid(self, scope: str, stream: str, cut: SegmentOffsets) -> bool:
        return await asyncio.to_thread(self.client.is_cut_valid, scope, stream, cut)

    async def segments_between(self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        """``InvalidArgument`` where the end lies before the start."""
        return await asyncio.to_thread(self.client.segments_between, scope, stream, start, end)


def _parsed(segment: str) -> SegmentName:
    return parse_segment_name(segment.removesuffix(INDEX_SUFFIX))
