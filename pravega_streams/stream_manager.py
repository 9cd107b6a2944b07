"""Offers all that a program does with a cluster from one object, without an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from pravega_common.errors import AlreadyExists
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.segments import SegmentOffsets
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.runtime.closing import Closing
from pravega_common.runtime.made_once import MadeOnce
from pravega_streams.async_client import AsyncStreamClient
from pravega_streams.byte_stream.byte_stream import ByteStream
from pravega_streams.client import StreamClient
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.controller.call_numbers import checked_names
from pravega_streams.credentials import Credentials
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter, lease_default_ms
from pravega_streams.readers.blocking import BlockingReaderGroup, LoopThread
from pravega_streams.readers.group_state import Start, refresh_time_default_ms
from pravega_streams.table.key_value_table import KeyValueTable
from pravega_streams.table.key_value_tables import KeyValueTableSettings


class StreamManager:
    """Scopes, streams, tables and reader groups of one cluster, and writers and readers on them.

    Nothing connects before the first call. Errors: those of ``ControllerClient``. Not to be used across ``fork``.
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
        self._address = ControllerAddress.of(controller, ca_file=ca_file, verify_host=verify_host)
        self._credentials = credentials
        self._closing = Closing(f"the manager of {self._address}")
        client, loop = StreamClient(self._address, credentials=credentials), LoopThread()
        self.client = self._closing.keep(client, client.close)
        self._loop = self._closing.keep(loop, loop.close)

    def __enter__(self) -> StreamManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections up, for good. Later calls, also of reader groups that it has made and of their readers,
        are refused with ``InvalidArgument``. Take readers offline before, and close event writers and byte streams:
        they have connections of their own, which go on until they need a controller."""
        self._closing.close()

    # ---- scopes and streams

    def create_scope(self, scope: str) -> bool:
        """Whether it is new."""
        return self.client.controller.create_scope(scope)

    def delete_scope(self, scope: str) -> bool:
        """Whether it was there. ``ScopeNotEmpty``."""
        return self.client.controller.delete_scope(scope)

    def list_scopes(self) -> Iterator[str]:
        return self.client.controller.list_scopes()

    def list_streams(self, scope: str, tag: str | None = None) -> Iterator[str]:
        """Names of a scope's streams without internal ones; with a tag, of those that have it."""
        controller = self.client.controller
        names = controller.list_streams(scope) if tag is None else controller.list_streams_with_tag(scope, tag)
        return (name for name in names if not name.startswith("_"))

    def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration | int = 1) -> bool:
        """Make a stream with a configuration, or with a fixed number of segments; whether it is new."""
        if not isinstance(configuration, StreamConfiguration):
            configuration = StreamConfiguration(ScalingPolicy.fixed(configuration))
        return self.client.controller.create_stream(scope, stream, configuration)

    def update_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> None:
        self.client.controller.update_stream(scope, stream, configuration)

    def get_stream_tags(self, scope: str, stream: str) -> list[str]:
        return sorted(self.client.controller.stream_configuration(scope, stream).tags)

    def set_stream_tags(self, scope: str, stream: str, tags: Iterable[str]) -> None:
        """Replace the tags; the rest of the configuration stays."""
        new = checked_names("tags", tags)
        configuration = self.client.controller.stream_configuration(scope, stream)
        self.client.controller.update_stream(scope, stream, replace(configuration, tags=new))

    def seal_stream(self, scope: str, stream: str) -> None:
        self.client.controller.seal_stream(scope, stream)

    def truncate_stream(self, scope: str, stream: str, cut: SegmentOffsets) -> None:
        """Forget everything before a cut."""
        self.client.controller.truncate_stream(scope, stream, cut)

    def delete_stream(self, scope: str, stream: str) -> bool:
        """Whether it was there. ``StreamNotSealed``."""
        return self.client.controller.delete_stream(scope, stream)

    # ---- writers

    def create_writer(self, scope: str, stream: str) -> EventWriter:
        return EventWriter(self.client, scope, stream)

    def create_transaction_writer(
        self, scope: str, stream: str, lease_ms: int = lease_default_ms
    ) -> TransactionalWriter:
        return TransactionalWriter(self.client, scope, stream, lease_ms)

    def create_byte_stream(self, scope: str, stream: str) -> ByteStream:
        return ByteStream(self.client, scope, stream)

    # ---- readers

    def create_reader_group(
        self,
        scope: str,
        group: str,
        streams: Iterable[str] | Mapping[str, Start],
        *,
        end: Mapping[str, SegmentOffsets] | None = None,
        refresh_time_ms: int = refresh_time_default_ms,
        retention: ReaderGroupRetention = ReaderGroupRetention.NONE,
    ) -> BlockingReaderGroup:
        """Make a reader group, or join it; as ``AsyncStreamClient.create_reader_group``."""
        made = self._asynchronous.create_reader_group(
            scope, group, streams, end=end, refresh_time_ms=refresh_time_ms, retention=retention
        )
        return BlockingReaderGroup(self._loop.run(made, changes=True), self._loop)

    def open_reader_group(self, scope: str, group: str) -> BlockingReaderGroup:
        """Join a reader group that exists: ``NotFound``."""
        return BlockingReaderGroup(self._loop.run(self._asynchronous.open_reader_group(scope, group)), self._loop)

    def delete_reader_group(self, scope: str, group: str) -> bool:
        """Whether it was there."""
        return self._loop.run(self._asynchronous.delete_reader_group(scope, group), changes=True)

    @MadeOnce
    def _asynchronous(self) -> AsyncStreamClient:
        """The client whose calls run in the loop, where it is closed as well."""
        made = AsyncStreamClient(self._address, credentials=self._credentials)
        return self._closing.keep(made, lambda: self._loop.run(made.__aexit__(None, None, None)))

    # ---- key-value tables

    def create_key_value_table(
        self, scope: str, table: str, *, primary_key_length: int, secondary_key_length: int = 0, partitions: int = 1
    ) -> bool:
        """Make a table whose keys have these lengths in bytes; whether it is new. ``AlreadyExists`` if a reader group
        has the name: the two would share a segment."""
        settings = KeyValueTableSettings(partitions, primary_key_length, secondary_key_length)
        if self._loop.run(self._asynchronous.has_reader_group(scope, table)):
            raise AlreadyExists(f"there is a reader group {scope}/{table}; give the key-value table another name")
        return self.client.key_value_tables.create(scope, table, settings)

    def delete_key_value_table(self, scope: str, table: str) -> bool:
        """Whether it was there."""
        return self.client.key_value_tables.delete(scope, table)

    def list_key_value_tables(self, scope: str) -> Iterator[str]:
        return self.client.key_value_tables.list(scope)

    def open_key_value_table(self, scope: str, table: str) -> KeyValueTable:
        """Open a table that exists: ``NotFound``."""
        settings = self.client.key_value_tables.settings(scope, table)
        return KeyValueTable(self.client.segments, self.client.key_value_tables.segments(scope, table), settings)
