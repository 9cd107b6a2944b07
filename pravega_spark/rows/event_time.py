"""Follows the event times of rows that are written, in a column that option ``event_time_column`` names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pravega_common.errors import InvalidArgument

_MICROSECONDS_PER_MS = 1_000


def check_event_time(fields: Sequence[tuple[str, str]], name: str) -> None:
    """``InvalidArgument`` unless one of these (name, SQL type) pairs is the column, and a timestamp."""
    found = [kind for other, kind in fields if other.lower() == name.lower()]
    if len(found) != 1:
        names = ", ".join(other for other, _ in fields)
        raise InvalidArgument(f"option 'event_time_column' names '{name}', and the columns to write are: {names}")
    if found[0] != "timestamp":
        raise InvalidArgument(f"the column of option 'event_time_column' must be a timestamp, '{name}' is {found[0]}")


class EventTimes:
    """The greatest time of the rows of one task; rows without a time do not count."""

    def __init__(self, name: str | None) -> None:
        """``name``: of the column, in any case of letters; None follows nothing."""
        self._name = name
        self.greatest_ms: int | None = None
        """Milliseconds since 1970, rounded down."""

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, looked at on the way."""
        for batch in batches:
            if self._name is not None and batch.num_rows:
                self._look_at(batch, self._name)
            yield batch

    def _look_at(self, batch: pa.RecordBatch, name: str) -> None:
        index = next(index for index, other in enumerate(batch.schema.names) if other.lower() == name.lower())
        import pyarrow.compute as pc  # Not needed to plan, and 30 ms of CPU.

        times = batch.column(index)
        zone = times.type.tz
        greatest = pc.max(times.cast(pa.timestamp("us", tz=zone)).cast(pa.int64())).as_py()
        if greatest is not None:
            greatest_ms = greatest // _MICROSECONDS_PER_MS
            self.greatest_ms = greatest_ms if self.greatest_ms is None else max(self.greatest_ms, greatest_ms)
