"""Finds the stream cut that a limit of a read gives: as text, in JSON of a query, or in its checkpoint."""

from __future__ import annotations

import json

from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentOffsets
from pravega_spark.options.limits import Limit
from pravega_spark.source.checkpoint import committed_position, told_position
from pravega_spark.source.offsets import OffsetsByStream


def cut_of(limit: Limit, scope: str, stream: str) -> SegmentOffsets:
    """The cut given for a stream; ``InvalidArgument`` where it has none, and for a folder that is no checkpoint."""
    cuts = _cuts(limit)
    cut = cuts.get(f"{scope}/{stream}")
    if cut is None:
        raise InvalidArgument(f"the stream cut is of {', '.join(cuts)}, but the stream to read is {scope}/{stream}")
    return cut


def has_cut_of(limit: Limit, scope: str, stream: str) -> bool:
    """Whether a cut is given for a stream."""
    return f"{scope}/{stream}" in _cuts(limit)


def _cuts(limit: Limit) -> OffsetsByStream:
    if not limit.told:
        return limit.cuts
    if limit.told.lstrip().startswith("{"):
        return told_position(json.loads(limit.told))
    return committed_position(limit.told).position
