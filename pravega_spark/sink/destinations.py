"""Finds the stream of each row of a sink: one for all rows, or the one that its column ``stream`` names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pravega_common.arrow_numbers import numbers_of
from pravega_common.errors import InvalidArgument
from pravega_common.names import split_scoped_name, validate_stream_name
from pravega_spark.options.definitions import streams_per_task_default
from pravega_spark.options.given import StreamName
from pravega_spark.rows.arrays import Int64s, number_array
from pravega_spark.rows.columns import SinkColumns


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Rows of a batch that go to one stream, in their order; ``lengths`` are those of their events."""

    stream: StreamName
    rows: pa.RecordBatch
    lengths: Int64s


class Destinations:
    """The destinations of one task's rows.

    ``stream``: None when the rows say it themselves, as ``stream`` (in ``scope``) or ``scope/stream``.

    ``scope``: where streams are that are named without one.
    """

    def __init__(self, scope: str, stream: StreamName | None, streams_max: int = streams_per_task_default) -> None:
        self.scope = scope if stream is None else stream[0]
        self._fixed = stream
        self._streams_max = streams_max
        self._parsed: dict[str, StreamName] = {}
        self._seen: set[StreamName] = set()

    def split(self, rows: pa.RecordBatch, columns: SinkColumns, lengths: Int64s) -> Iterator[StreamRows]:
        """The rows by stream. ``InvalidArgument`` for rows without a destination, bad names, and too many streams."""
        if self._fixed is not None:
            yield StreamRows(self._fixed, rows, lengths)
            return
        names = columns.streams_of(rows)
        if names.null_count:
            raise InvalidArgument(
                f"{names.null_count} of {len(names)} rows have null in column 'stream', so nobody knows where they "
                "go; fill it, or filter these rows"
            )
        encoded = names.dictionary_encode()
        named = [self._stream(text) for text in encoded.dictionary.to_pylist()]
        streams = list(dict.fromkeys(named))
        if len(streams) == 1:
            yield StreamRows(streams[0], rows, lengths)
            return
        # A stream may be there under two spellings, whose rows must stay in their order.
        ranks = {name: rank for rank, name in enumerate(streams)}
        indexes = np.array([ranks[name] for name in named])[numbers_of(encoded.indices)]
        order = np.argsort(indexes, kind="stable")
        taken, first = rows.take(number_array(order, pa.int64())), 0
        for stream, count in zip(streams, np.bincount(indexes, minlength=len(streams)).tolist(), strict=True):
            yield StreamRows(stream, taken.slice(first, count), lengths[order[first : first + count]])
            first += count

    def _stream(self, text: str) -> StreamName:
        found = self._parsed.get(text)
        if found is None:
            found = self._parse(text)
            self._seen.add(found)
            if len(self._seen) > self._streams_max:
                raise InvalidArgument(
                    f"the rows of one task go to more than {self._streams_max} streams, {'/'.join(found)} is one too "
                    "many; repartition by column 'stream', or raise option max_streams_per_task"
                )
            self._parsed[text] = found
        return found

    def _parse(self, text: str) -> StreamName:
        try:
            if "/" in text:
                return split_scoped_name(text)
            validate_stream_name(text)
        except InvalidArgument as error:
            raise InvalidArgument(f"column 'stream' holds '{text}', which is no stream: {error}") from error
        return self.scope, text
