"""Tests that the lag of many streams is asked for a page at a time."""

from __future__ import annotations

from pravega_common.lag_forms import lag_to
from pravega_common.model.stream_lags import DescribedLag, DescribedSubscriber, streams_per_call_max
from pravega_common.proto import stream_lags_pb2 as pb
from pravega_streams.controller.stream_lags import StreamLagClient
from pravega_streams.controller.transport import ControllerTransport


class PagesOnly(ControllerTransport):
    """Answers every page, without those streams whose name ends with 7."""

    def __init__(self) -> None:
        super().__init__("tcp://localhost:1")
        self.pages: list[int] = []

    def stream_lags(self, method: str, request: pb.DescribeLagsRequest) -> pb.DescribeLagsResponse:
        assert method == "DescribeLags"
        self.pages.append(len(request.streams))
        there = [one for one in request.streams if not one.stream.endswith("7")]
        subscriber = DescribedSubscriber("s/q", 5, 0)
        return pb.DescribeLagsResponse(streams=[lag_to(DescribedLag("s", one.stream, (subscriber,))) for one in there])


def test_a_call_asks_for_a_page() -> None:
    transport = PagesOnly()
    names = [("s", f"stream{index:03}") for index in range(2 * streams_per_call_max + 1)]
    found = StreamLagClient(transport).describe(names)
    assert transport.pages == [streams_per_call_max, streams_per_call_max, 1]
    assert [one.stream for one in found] == [name for _, name in names if not name.endswith("7")]
    assert found[0].subscribers == (DescribedSubscriber("s/q", 5, 0),), "0 bytes behind is known"
    assert StreamLagClient(transport).describe([]) == [] and len(transport.pages) == 3
