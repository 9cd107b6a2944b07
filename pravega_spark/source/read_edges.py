"""Finds the positions at which a read of a stream begins and ends by its options."""

from __future__ import annotations

from pravega_common.model.segments import SegmentOffsets
from pravega_spark.options.limits import Limit, StartTimes
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.stream_positions import StreamPositions
from pravega_spark.source.told_cuts import cut_of, has_cut_of, with_cuts


def given_start(options: ReadOptions) -> Limit | None:
    """The start that the options of a read give, with its cuts: for the streams of one plan."""
    limit = options.start_stream_cut
    return None if limit is None else with_cuts(limit)


def first_cut(options: ReadOptions, limit: Limit | None, one: StreamPositions, *, is_streaming: bool) -> SegmentOffsets:
    """The start of a read that has no checkpoint; ``limit``: its ``given_start``.

    Where cuts or times are given by stream, a stream that only a pattern names needs none: it is read from its head.
    ``InvalidArgument`` where a given cut leaves out keys, whose rows nobody would miss.
    """
    if options.start_time is not None:
        return _cut_of_time(options, options.start_time, one)
    if limit is None:
        return one.tail() if is_streaming else one.head()
    if limit.keyword is not None:
        return one.tail() if limit.is_latest else one.head()
    cut = _given_cut(options, limit, one)
    if is_streaming:  # A batch's plan asks the controller for what lies between its two cuts, which checks them.
        one.check_covers_keys(cut)
    return cut


def starts_at_latest(options: ReadOptions) -> bool:
    """Whether a streaming read without a checkpoint starts where its streams end."""
    limit = options.start_stream_cut
    return options.start_time is None and (limit is None or limit.is_latest)


def moves_with_head(options: ReadOptions) -> bool:
    """Whether a read without a checkpoint starts elsewhere once its streams are truncated, and nobody misses it."""
    limit = options.start_stream_cut
    if options.start_time is not None:
        return True
    return limit is not None and limit.keyword is not None and not limit.is_latest


def joining_cut(options: ReadOptions, one: StreamPositions) -> SegmentOffsets:
    """The start of a stream that a query comes to later: its head, and for a pattern not before ``start_time``."""
    if options.start_time is not None and options.stream_pattern is not None:
        return _cut_of_time(options, options.start_time, one)
    return one.head()


def last_cut(options: ReadOptions, limit: Limit, one: StreamPositions) -> SegmentOffsets:
    """The end that ``limit`` (``with_cuts``) gives, ``unbounded`` being the present one; as ``first_cut``."""
    return one.tail() if limit.keyword is not None else _given_cut(options, limit, one)


def _given_cut(options: ReadOptions, limit: Limit, one: StreamPositions) -> SegmentOffsets:
    if options.stream_pattern is not None and not has_cut_of(limit, one.scope, one.stream):
        return one.head()
    return cut_of(limit, one.scope, one.stream)


def _cut_of_time(options: ReadOptions, times: StartTimes, one: StreamPositions) -> SegmentOffsets:
    if options.stream_pattern is not None and not times.has(one.scope, one.stream):
        return one.head()
    return one.cut_at_time(times.of(one.scope, one.stream), as_end=False)
