"""Checks options against each other: which exclude each other, and which need another one."""

from __future__ import annotations

from pravega_common.errors import ConfigurationError
from pravega_spark.options.definitions import Use
from pravega_spark.options.given import GivenOptions


def check_combination(given: GivenOptions, use: Use) -> None:
    """``ConfigurationError`` with one sentence for the first contradiction."""
    _check_creation(given)
    _check_write(given)
    _check_read(given, use)


def _check_creation(given: GivenOptions) -> None:
    _exclude(
        given,
        "default_segment_target_rate_bytes_per_sec",
        "default_segment_target_rate_events_per_sec",
        "a stream scales by one rate",
    )
    _exclude(
        given, "default_retention_duration_milliseconds", "default_retention_size_bytes", "a stream has one retention"
    )
    for name in ("default_segment_target_rate_bytes_per_sec", "default_segment_target_rate_events_per_sec"):
        if given.is_given(name) and not (
            given.is_given("default_scale_factor") and given.is_given("default_num_segments")
        ):
            raise ConfigurationError(f"option '{name}' needs default_scale_factor and default_num_segments too")


def _check_write(given: GivenOptions) -> None:
    if given.is_given("txn_app_id") != given.is_given("txn_version"):
        raise ConfigurationError("options 'txn_app_id' and 'txn_version' belong together; give both or neither")
    _exclude(given, "txn_app_id", "job_id", "both name the write")
    if given.is_given("event_time_column") and not given.value("read_after_write_consistency"):
        raise ConfigurationError(
            "option 'event_time_column' needs read_after_write_consistency=true: a time is noted behind its rows, once "
            "they can be read"
        )
    for name in ("txn_app_id", "job_id"):
        if given.is_given(name) and not given.value("exactly_once"):
            raise ConfigurationError(f"option '{name}' needs exactly_once=true")
    if given.value("format") == "record" and given.value("route_by") == "segment":
        raise ConfigurationError("options 'format' and 'route_by' exclude each other: a record is routed by its key")


def _check_read(given: GivenOptions, use: Use) -> None:
    if given.value("ingest_time"):
        _exclude(given, "metadata", "ingest_time", "metadata gives facts about streams, and no events")
    if given.value("format") == "record":
        _exclude(given, "metadata", "format", "metadata gives facts about streams, and no records")
    if use is Use.STREAM_READ and given.value("order") == "key":
        for name in ("min_partitions", "max_partition_bytes"):
            if given.is_given(name):
                raise ConfigurationError(f"option '{name}' splits segments, which needs order=none")
    least, most = given.value("min_events_per_trigger"), given.value("max_events_per_trigger")
    if least is not None and most is not None and least > most:
        raise ConfigurationError(
            f"option 'min_events_per_trigger' is '{least}', but must not be more than 'max_events_per_trigger', {most}"
        )
    if given.is_given("max_trigger_delay") and least is None:
        raise ConfigurationError("option 'max_trigger_delay' needs min_events_per_trigger too")
    for name in ("stream_discovery_interval", "max_streams"):
        if given.is_given(name) and not given.is_given("stream_pattern"):
            raise ConfigurationError(f"option '{name}' needs stream_pattern too")
    _exclude(given, "start_stream_cut", "start_time", "both say where to start")
    _exclude(given, "end_stream_cut", "end_time", "both say where to stop")
    start_times, end_ms = given.value("start_time"), given.value("end_time")
    if start_times is not None and end_ms is not None and end_ms <= start_times.last:
        raise ConfigurationError(
            f"option 'end_time' is '{given.text('end_time')}', but must be later than option 'start_time', "
            f"{given.text('start_time')}"
        )
    start = given.value("start_stream_cut")
    if use is Use.BATCH_READ and start is not None and start.is_latest:
        raise ConfigurationError("option 'start_stream_cut' is 'latest', which only a streaming read can start at")


def _exclude(given: GivenOptions, first: str, second: str, why: str) -> None:
    if given.is_given(first) and given.is_given(second):
        raise ConfigurationError(f"options '{first}' and '{second}' exclude each other: {why}")
