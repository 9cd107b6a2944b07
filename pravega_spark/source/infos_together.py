"""Asks the stores about the segments of many streams together, so that a look costs a question a store."""

from __future__ import annotations

from collections.abc import Mapping

from pravega_common.errors import AccessDenied, AuthenticationFailed, NotFound
from pravega_common.model.segments import SegmentInfo
from pravega_common.names import split_scoped_name
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.source.offsets import OffsetsByStream

Infos = Mapping[str, Mapping[int, SegmentInfo]]
"""What the stores say of each segment, by ``scope/stream`` and id."""


def infos_together(gateway: StreamGateway, position: OffsetsByStream, known: Infos) -> Infos:
    """``known`` with what the stores say of the other segments of a position.

    Segments that are not there are left out. So are all of one stream, which asks for itself, and all where one of the
    streams is deleted or closed to this client: who reads that one says so.
    """
    wanted = {
        split_scoped_name(name): [item for item in cut if item not in known.get(name, {})]
        for name, cut in position.items()
    }
    wanted = {stream: ids for stream, ids in wanted.items() if ids}
    if len(wanted) < 2:
        return known
    try:
        found = gateway.segment_infos_of_streams(wanted)
    except (NotFound, AccessDenied, AuthenticationFailed):
        return known
    return {name: {**known.get(name, {}), **found.get(split_scoped_name(name), {})} for name in position}
