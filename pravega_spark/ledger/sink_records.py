"""Reads and changes the records of sinks in table segments, by compare-and-set."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pravega_common.errors import BadKeyVersion, KeyNotFound, SegmentNotFound, UnknownOutcome
from pravega_common.model.transaction_sets import Sink
from pravega_common.runtime.system_time import system_time_ms
from pravega_spark.ledger.record import LedgerRecord, from_bytes, key_of, new_record, table_segment, to_bytes
from pravega_spark.ledger.record_table import RecordTable, read_or_create
from pravega_streams.table.table_client import NOT_EXISTS

_log = logging.getLogger(__name__)

retry_delay_s: Final = 0.05
"""Pause before a record is read again whose change may or may not have been made."""


@dataclass(frozen=True, slots=True)
class VersionedRecord:
    """A sink's record with the version that a change of it must name."""

    record: LedgerRecord
    version: int


class SinkRecords:
    """The records of sinks, one table segment a scope. Errors of all calls: ``Unavailable``: call again."""

    def __init__(
        self,
        open_table: Callable[[str], RecordTable],
        sleep: Callable[[float], None] = time.sleep,
        now_ms: Callable[[], int] = system_time_ms,
    ) -> None:
        self._open_table = open_table
        self._sleep = sleep
        self._now_ms = now_ms

    def read(self, sink: Sink) -> VersionedRecord:
        """The sink's record, or an empty one that is not written yet."""
        table, key = self._open_table(table_segment(sink)), key_of(sink)
        item = read_or_create(table, key, self._sleep)
        if item.version == NOT_EXISTS:
            return VersionedRecord(new_record(sink), NOT_EXISTS)
        return VersionedRecord(from_bytes(item.value), item.version)

    def write(self, found: VersionedRecord, record: LedgerRecord) -> VersionedRecord | None:
        """Change the record; ``None`` if it has changed since it was found, or may have been changed by this call."""
        table = self._open_table(table_segment(record.sink))
        record = replace(record, touched_ms=self._now_ms())
        data = to_bytes(record)
        try:
            return VersionedRecord(record, table.put(key_of(record.sink), data, found.version))
        except (BadKeyVersion, KeyNotFound):
            return None
        except UnknownOutcome as error:
            _log.info("the record of %s may have been written, reading it again: %s", record.sink, error)
            self._sleep(retry_delay_s)
            return None

    def of_scope(self, scope: str) -> list[LedgerRecord]:
        """The records of a scope's sinks."""
        table = self._open_table(table_segment(Sink("", scope)))
        try:
            return [from_bytes(item.value) for item in table.items()]
        except SegmentNotFound:
            return []
