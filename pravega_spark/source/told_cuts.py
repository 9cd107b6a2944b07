"""Finds the stream cut that a limit of a read gives: as text, in JSON of a query, or in its checkpoint."""

from __future__ import annotations

import json

from pravega_common.errors import InvalidArgument
from pravega_common.invariants import check
from pravega_common.model.segments import SegmentOffsets
from pravega_spark.options.limits import Limit
from pravega_spark.source.checkpoint import committed_position, told_position
from pravega_spark.source.offsets import OffsetsByStream


def with_cuts(limit: Limit) -> Limit:
    """The limit with its cuts: a query tells those of all its streams at once, and goes on meanwhile.

    So a plan asks once, for all its streams. ``InvalidArgument`` for a folder that is no checkpoint.
    """
    if not limit.told:
        return limit
    return Limit(None, dict(_told(limit.told)))


def cut_of(limit: Limit, scope: str, stream: str) -> SegmentOffsets:
    """The cut given for a stream by a limit ``with_cuts``; ``InvalidArgument`` where it has none."""
    _check_has_cuts(limit)
    cut = limit.cuts.get(f"{scope}/{stream}")
    if cut is None:
        listed = ", ".join(limit.cuts)
        raise InvalidArgument(f"the stream cut is of {listed}, but the stream to read is {scope}/{stream}")
    return cut


def has_cut_of(limit: Limit, scope: str, stream: str) -> bool:
    """Whether a limit ``with_cuts`` gives a cut for a stream."""
    _check_has_cuts(limit)
    return f"{scope}/{stream}" in limit.cuts


def _told(text: str) -> OffsetsByStream:
    return told_position(json.loads(text)) if text.lstrip().startswith("{") else committed_position(text).position


def _check_has_cuts(limit: Limit) -> None:
    check(not limit.told, "a told position was not asked for")
