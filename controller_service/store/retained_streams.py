"""Indexes the streams that retention and the expiry of records look at, so that a run costs what these cost.

They have a retention policy, or were truncated and have records of epochs to lose. Who gives a stream a policy puts the
entry before the configuration is written and after it, and who truncates it, likewise: a crash in between leaves an
entry too many. Runs take out what needs neither, is sealed or is gone. The index of a cluster of a former version is
made by the first run; that of a new one has all streams from the start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from controller_service.store.indexed_streams import IndexedStreams
from controller_service.store.records import RetainedStreamRecord
from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import VersionedStore
from pravega_common.model.retention import RetentionType
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import scoped_name
from pravega_common.runtime.failpoints import failpoint, register

RETAINED_STREAMS_TABLE: Final = "retainedStreams"
_COMPLETE: Final = "complete"
"""Stands once the index has all streams; no name of a stream in its scope, since those have a slash."""

NOTED = register("controller.retention_noted")

RetainedStream = tuple[str, str, str, int]
"""Scope, name and id of a stream, and the version of its entry, read before the stream."""


class RetainedStreams:
    def __init__(self, tables: VersionedStore) -> None:
        self._index = IndexedStreams(tables, RETAINED_STREAMS_TABLE)
        self._is_complete = False

    async def note(self, scope: str, stream: str, stream_id: str, configuration: StreamConfiguration) -> None:
        """Have a stream with a policy in the index; called before and after the configuration is written."""
        if is_retained(configuration):
            await self.put(scope, stream, stream_id)
            failpoint(NOTED)

    async def put(self, scope: str, stream: str, stream_id: str) -> None:
        await self._index.put(scoped_name(scope, stream), encode(RetainedStreamRecord(stream_id)))

    async def remove(self, scope: str, stream: str, version: int) -> None:
        """Take an entry out, unless it was put again since it was read."""
        await self._index.remove(scope, stream, version)

    async def pages(self) -> AsyncIterator[list[RetainedStream]]:
        """All streams in the index, a page at a time."""
        async for page in self._index.pages():
            yield [
                (scope, stream, decode(RetainedStreamRecord, found.value).stream_id, found.version)
                for scope, stream, found in page
            ]

    async def is_complete(self) -> bool:
        """Whether the streams of former versions are in the index, too."""
        self._is_complete = self._is_complete or await self._index.has(_COMPLETE)
        return self._is_complete

    async def mark_complete(self) -> None:
        await self._index.put(_COMPLETE, encode(RetainedStreamRecord("")))


def is_retained(configuration: StreamConfiguration) -> bool:
    policy = configuration.retention
    return policy is not None and policy.retention_type is not RetentionType.NONE
