"""Joins the clients of one cluster for code with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from pravega_common.errors import (
    AccessDenied,
    AlreadyExists,
    AuthenticationFailed,
    InvalidArgument,
    NotFound,
    UnsupportedOperation,
)
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.segments import SegmentOffsets
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.controller.asynchronous import AsyncController
from pravega_streams.controller.call_numbers import checked_mapping, checked_names, checked_text
from pravega_streams.controller.client import ControllerClient
from pravega_streams.controller.reader_groups import AsyncReaderGroupClient, ReaderGroupClient
from pravega_streams.credentials import Credentials
from pravega_streams.errors import ControllerRefused
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.readers.cut_publisher import CutPublisher
from pravega_streams.readers.group_state import (
    HEAD,
    GroupConfiguration,
    Start,
    refresh_time_default_ms,
)
from pravega_streams.readers.reader_group import ReaderGroup
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.key_value_tables import KeyValueTableClient
from pravega_streams.table.table_client import TableClient


class AsyncStreamClient:
    """The clients of one cluster, sharing connections; nothing connects before the first call.

    For one event loop. ``controller`` blocks and may be used from threads; ``requests`` and ``tables`` do not block.
    The arguments are those of ``StreamClient``.
    """

    def __init__(
        self,
        controller: str | ControllerAddress,
        *,
        ca_file: str | Path = "",
        verify_host: bool = True,
        credentials: Credentials | None = None,
    ) -> None:
        address = ControllerAddress.of(controller, ca_file=ca_file, verify_host=verify_host)
        self.controller = ControllerClient(address, credentials=credentials)
        self.metadata = AsyncController(self.controller)
        self.requests = RawClient(self.metadata)
        self.tables = TableClient(self.requests)
        self._groups = ReaderGroupClient(self.controller.transport)
        self._registry = AsyncReaderGroupClient(self._groups)
        self._key_value_tables = KeyValueTableClient(self.controller.transport)
        self._cluster = ReaderCluster(self.metadata, self.requests, self.tables, self.metadata)

    async def __aenter__(self) -> AsyncStreamClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.requests.close()
        self.controller.close()

    async def create_reader_group(
        self,
        scope: str,
        group: str,
        streams: Iterable[str] | Mapping[str, Start],
        *,
        end: Mapping[str, SegmentOffsets] | None = None,
        refresh_time_ms: int = refresh_time_default_ms,
        retention: ReaderGroupRetention = ReaderGroupRetention.NONE,
    ) -> ReaderGroup:
        """Make a reader group on streams of a scope, or join it as it is if it exists.

        ``streams``: names, read from their heads; or names with ``HEAD``, ``TAIL`` or a cut each. ``end``: cuts at
        which the group stops reading. ``retention``: whether the group's position holds retention back, published on
        request, or by itself from here on. After an error the call may be repeated. ``AlreadyExists`` if a key-value
        table has the name: the two would share a segment.
        """
        if await self._is_table(scope, group):
            raise AlreadyExists(f"there is a key-value table {scope}/{group}; give the reader group another name")
        starts = (
            streams
            if isinstance(streams, Mapping)
            else dict.fromkeys(checked_names("streams of a reader group", streams), HEAD)
        )
        ends = checked_mapping("the end of a reader group, a cut by stream", end or {})
        configuration = GroupConfiguration(
            {(scope, stream): start for stream, start in starts.items()},
            {(scope, stream): cut for stream, cut in ends.items()},
            refresh_time_ms,
        )
        if retention is ReaderGroupRetention.NONE:
            publisher = await self._publisher_of(scope, group)
            return await ReaderGroup(self._cluster, scope, group, publisher).create(configuration)

        async def register() -> CutPublisher:
            registration = await asyncio.to_thread(
                self._groups.create, scope, group, list(configuration.start), retention, refresh_time_ms
            )
            return CutPublisher(self._cluster, registration, self._registry)

        made = await ReaderGroup(self._cluster, scope, group).create(configuration, register)
        if made.publishes_itself:
            # Until there is a cut retention waits for nothing, and readers may come much later.
            with suppress(InvalidArgument):  # A group that existed may stand before what it has published.
                await made.publish_cuts()
        return made

    async def open_reader_group(self, scope: str, group: str) -> ReaderGroup:
        """Join a reader group that exists: ``NotFound``."""
        return await ReaderGroup(self._cluster, scope, group, await self._publisher_of(scope, group)).open()

    async def delete_reader_group(self, scope: str, group: str) -> bool:
        """Delete a group with its registration; whether it was there. A key-value table of that name stays."""
        registration = await self._registry.find(scope, group)
        if registration is not None:
            await asyncio.to_thread(self._groups.delete, registration)
        if await self._is_table(scope, group):
            return registration is not None
        return await ReaderGroup(self._cluster, scope, group).delete() or registration is not None

    async def has_reader_group(self, scope: str, group: str) -> bool:
        """Whether there is a group of that name; False also for who may not look."""
        try:
            named = checked_text("a scope", scope), checked_text("a reader group", group)
            await ReaderGroup(self._cluster, *named).open()
        except (NotFound, InvalidArgument, AccessDenied, AuthenticationFailed, UnsupportedOperation):
            return False  # The last of a key-value table.
        return True

    async def _is_table(self, scope: str, name: str) -> bool:
        """Whether a key-value table has the name; False also for who may not look, and where nobody knows of tables."""
        try:
            await asyncio.to_thread(self._key_value_tables.settings, scope, name)
        except (NotFound, AccessDenied, ControllerRefused, UnsupportedOperation):
            return False
        return True

    async def _publisher_of(self, scope: str, group: str) -> CutPublisher | None:
        """The publisher of a group that is registered; None also for who may read its streams and no registration."""
        try:
            registration = await self._registry.find(scope, group)
        except AccessDenied:
            return None
        return None if registration is None else CutPublisher(self._cluster, registration, self._registry)
