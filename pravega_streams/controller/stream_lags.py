"""Asks how far those who read streams are behind the tails (stream_lags.proto)."""

from __future__ import annotations

from collections.abc import Sequence

from pravega_common.lag_forms import lag_from
from pravega_common.model.stream_lags import DescribedLag, streams_per_call_max
from pravega_common.proto import stream_lags_pb2 as pb
from pravega_streams.controller.transport import ControllerTransport


class StreamLagClient:
    """Blocking calls; each may be repeated. ``UnsupportedOperation`` on a plain Pravega."""

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def describe(self, streams: Sequence[tuple[str, str]]) -> list[DescribedLag]:
        """The lags of streams by scope and name, a page of them a call; without those that do not exist."""
        found: list[DescribedLag] = []
        for start in range(0, len(streams), streams_per_call_max):
            page = streams[start : start + streams_per_call_max]
            request = pb.DescribeLagsRequest(streams=[pb.LagStream(scope=scope, stream=name) for scope, name in page])
            found += map(lag_from, self._transport.stream_lags("DescribeLags", request).streams)
        return found
