"""Warns of a write that copies plain events from a stream, whose keys are not known any more."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_spark.rows.columns import SinkColumns
from pravega_spark.rows.record_columns import WrittenColumns

_log = logging.getLogger(__name__)

_PLACE: Final = {"segment_id", "offset"}
destinations_warned_max: Final = 1000
_warned: set[str] = set()


def routed_by_segment(names: Sequence[str], columns: SinkColumns) -> SinkColumns:
    """The columns with ``segment_id`` for a routing key: rows that were in one segment go to one segment, in order.

    ``ConfigurationError`` where rows do not say it, or have a key of their own.
    """
    places = [index for index, name in enumerate(names) if name.lower() == "segment_id"]
    if len(places) != 1:
        raise ConfigurationError("route_by=segment needs the column 'segment_id' that a read of a stream adds; keep it")
    if columns.key is not None:
        raise ConfigurationError(
            f"route_by=segment, but the column '{names[columns.key]}' is a routing key; drop it, or set route_by=key"
        )
    return replace(columns, key=places[0])


def warn_of_lost_keys(names: Iterable[str], columns: WrittenColumns, destination: str) -> None:
    """Warn, once for each destination and process, of rows that say where they were read and have no routing key."""
    is_copy = {name.lower() for name in names} >= _PLACE
    without_key = isinstance(columns, SinkColumns) and columns.key is None
    if is_copy and without_key and destination not in _warned and len(_warned) < destinations_warned_max:
        _warned.add(destination)
        _log.warning(
            "the events for %s were read from a stream (columns segment_id and offset) and have no column "
            "'routing_key': they are spread over all segments, so events that had one key lose their order. Write both "
            "streams with format=record, which keeps the key, or select the key from the event, or set "
            "route_by=segment, which keeps the order of each segment; where the order does not matter, drop these two "
            "columns",
            destination,
        )
