"""The client library of Pravega: streams without Spark. The README of this folder has an example of each name.

The public names are imported when they are first used (PEP 562): a Spark executor that reads one range must not pay
for the controller's client. ``__init__.pyi`` declares them for type checkers.
"""

from __future__ import annotations

from typing import Any, Final

from pravega_common.public_names import public_name

_MODULES: Final = {
    "AsyncStreamClient": "pravega_streams.async_client",
    "BasicCredentials": "pravega_streams.credentials",
    "BearerCredentials": "pravega_streams.credentials",
    "BlockingEventReader": "pravega_streams.readers.blocking",
    "BlockingReaderGroup": "pravega_streams.readers.blocking",
    "BlockingTable": "pravega_streams.table.blocking_table",
    "ByteStream": "pravega_streams.byte_stream.byte_stream",
    "CompositeKey": "pravega_streams.table.key_value_table",
    "ControllerRefused": "pravega_streams.errors",
    "EventReader": "pravega_streams.readers.event_reader",
    "EventWriter": "pravega_streams.event.event_writer",
    "EventsTruncated": "pravega_streams.errors",
    "HEAD": "pravega_streams.readers.group_state",
    "KeyValueEntry": "pravega_streams.table.key_value_table",
    "KeyValueTable": "pravega_streams.table.key_value_table",
    "KeyValueUpdate": "pravega_streams.table.key_value_table",
    "Outcome": "pravega_common.errors",
    "PravegaError": "pravega_common.errors",
    "PasswordFileCredentials": "pravega_streams.credentials",
    "ReadEvent": "pravega_streams.readers.slices",
    "ReaderGroup": "pravega_streams.readers.reader_group",
    "ReaderGroupRetention": "pravega_common.model.reader_groups",
    "ReaderOffline": "pravega_streams.errors",
    "RetentionPolicy": "pravega_common.model.retention",
    "RetentionType": "pravega_common.model.retention",
    "ScaleType": "pravega_common.model.scaling",
    "ScalingPolicy": "pravega_common.model.scaling",
    "SegmentOffsets": "pravega_common.model.segments",
    "SegmentRange": "pravega_common.model.segments",
    "SegmentSlice": "pravega_streams.readers.slices",
    "StoredEvent": "pravega_streams.batch.events",
    "StreamClient": "pravega_streams.client",
    "StreamConfiguration": "pravega_common.model.stream_configuration",
    "StreamCut": "pravega_common.stream_cut",
    "StreamManager": "pravega_streams.stream_manager",
    "TAIL": "pravega_streams.readers.group_state",
    "TableItem": "pravega_streams.table.table_client",
    "Transaction": "pravega_streams.event.transaction",
    "TransactionFailed": "pravega_streams.errors",
    "TransactionState": "pravega_common.model.transactions",
    "TransactionalWriter": "pravega_streams.event.transaction",
    "read_events": "pravega_streams.batch.events",
}
"""The module of each public name."""

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    return public_name(globals(), _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
