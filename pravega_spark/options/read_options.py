"""Defines the options of a batch or streaming read as typed fields."""

from __future__ import annotations

from dataclasses import dataclass
from re import Pattern
from typing import Literal

from pravega_spark.options.limits import Limit, StartTimes
from pravega_spark.options.stream_options import StreamOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(StreamOptions):
    """The checked options of one source; times are milliseconds since 1970, time spans are milliseconds."""

    stream_pattern: Pattern[str] | None
    stream_discovery_interval: int
    max_streams: int
    start_stream_cut: Limit | None
    end_stream_cut: Limit | None
    start_time: StartTimes | None
    end_time: int | None
    approx_bytes_per_trigger: int | None
    max_events_per_trigger: int | None
    min_events_per_trigger: int | None
    max_trigger_delay: int
    fail_on_data_loss: bool
    subscriber: str | None
    order: Literal["key", "none"]
    min_partitions: int | None
    max_partition_bytes: int | None
    packed_bytes: int
    metadata: Literal["StreamInfo", "Streams"] | None
    ingest_time: bool
    push_filters: Literal["false", "true", "once"]
    native_reader: bool
